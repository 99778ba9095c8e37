"""One job in a process of the pool: the order to run it, and the answers to what its handler reports."""

from __future__ import annotations

from typing import Any

from qo.values import Lease
from qo.worker.context import Context
from qo.worker.context import Extend as Extends
from qo.worker.context import Report as ReportTo
from qo.worker.processes.failures import describe
from qo.worker.processes.messages import Answer, Extend, Report, Run
from qo.worker.processes.pool import Pool
from qo.worker.processes.reference import reference_to
from qo.worker.task import Task


async def run_in_process(
    pool: Pool, task: Task, lease: Lease, context: Context, *, report: ReportTo, extend: Extends
) -> Any:
    """Run the handler of a task and return its result as JSON (`msgspec.Raw`), or raise what it raised. `context` is
    the job's in the worker; the handler has another one."""

    async def reply(question: Report | Extend) -> Answer:
        try:
            if isinstance(question, Extend):
                return Answer(expires_at=await extend(question.milliseconds))
            await report(question.advance)
            context.present_stage = question.advance.stage or context.present_stage
        except Exception as error:
            # It is the handler's, which may catch it.
            return Answer(failure=describe(error))
        return Answer()

    order = Run(
        handler=reference_to(task.handler),
        task=task.name,
        stages=task.stages,
        job=lease.job,
        token=lease.token,
        slots=dict(lease.slots),
        payload=lease.payload,
        checkpoint=lease.checkpoint,
    )
    return await pool.run(order, reply)
