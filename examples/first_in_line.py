"""qo's rule at work on the embedded store: a job starts when it is the first in line whose every group has a free slot.

The queue and the worker come on top of this; here the store itself is asked, step by step.
"""

from __future__ import annotations

import asyncio

from qo.job import State
from qo.store.open import open_store
from qo.store.values import Limit, Outcome, Source, Submission


async def main() -> None:
    store = await open_store("memory://")
    await store.set_limits([Limit(group="user:ada", slots=1, source=Source.OPERATOR)])
    await store.submit(
        [
            Submission(id="ada-1", task="build", user="ada"),
            Submission(id="ada-2", task="build", user="ada"),
            Submission(id="ben-1", task="build", user="ben"),
            Submission(id="cat-1", task="build", user="cat", priority=20),
        ]
    )
    print("In line:")
    for job in await store.jobs(status="queued"):
        print(f"  #{job.position} {job.id} (priority {job.priority})")

    claimed = await store.claim(worker="worker-1", tasks=["build"], places=10, lease_ms=60_000, claim_id="first")
    print("Started:", ", ".join(lease.job.id for lease in claimed.leases))

    blockers = await store.blockers("ada-2")
    group = blockers.groups[0]
    print(f"Why not ada-2? {group.group} has {group.active} of {group.limit} slots taken by {group.slots[0].holder}.")

    ada_1 = next(lease for lease in claimed.leases if lease.job.id == "ada-1")
    await store.finish([Outcome(job_id="ada-1", token=ada_1.token, state=State.SUCCEEDED)])
    claimed = await store.claim(worker="worker-1", tasks=["build"], places=10, lease_ms=60_000, claim_id="second")
    print("ada-1 has ended, started:", ", ".join(lease.job.id for lease in claimed.leases))
    await store.close()


asyncio.run(main())
