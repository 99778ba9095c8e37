"""The values that go into a store's operations, and those that come out.

They are plain numbers and names: tiers, estimates and HTTP have already been turned into these. Times that a caller
gives are whole milliseconds since 1970 (`..._at_ms`) or spans (`..._ms`).

No value can refer to itself, so the garbage collector need not track it (`gc=False`): a claim of fifty jobs makes
hundreds of values. Only a lease is tracked, because it keeps its job once that was read.
"""

from qo.values.bounds import GROUPS_A_LOOK, Bounds, looks
from qo.values.callers import Grant, Ticket
from qo.values.limits import GroupStatus, Limit, LimitChange, LimitIgnored, SlotInfo, Source, Unlimited
from qo.values.reading import (
    Audited,
    Blockers,
    InLine,
    JobsPage,
    LinePage,
    Mean,
    Observed,
    ParentStatus,
    Place,
    Record,
    SeriesPoint,
    UserUsage,
    Wanted,
)
from qo.values.running import (
    Advance,
    Average,
    Claimed,
    Finished,
    Held,
    Lease,
    Offer,
    Outcome,
    Renewal,
    Renewed,
    Suspicion,
)
from qo.values.submitting import Accepted, Refusal, RefusalReason, Standing, Submission
from qo.values.upkeep import Keep, Portion, Reminder, Retention, UpkeepDone, UpkeepRules
from qo.values.workers import (
    DEFAULT_LEASE_MS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TURN_AFTER,
    Registered,
    Registration,
    TaskOptions,
    WorkerInfo,
)

__all__ = [
    "DEFAULT_LEASE_MS",
    "DEFAULT_MAX_ATTEMPTS",
    "DEFAULT_TURN_AFTER",
    "GROUPS_A_LOOK",
    "Accepted",
    "Advance",
    "Audited",
    "Average",
    "Blockers",
    "Bounds",
    "Claimed",
    "Finished",
    "Grant",
    "GroupStatus",
    "Held",
    "InLine",
    "JobsPage",
    "Keep",
    "Lease",
    "Limit",
    "LimitChange",
    "LimitIgnored",
    "LinePage",
    "Mean",
    "Observed",
    "Offer",
    "Outcome",
    "ParentStatus",
    "Place",
    "Portion",
    "Record",
    "Refusal",
    "RefusalReason",
    "Registered",
    "Registration",
    "Reminder",
    "Renewal",
    "Renewed",
    "Retention",
    "SeriesPoint",
    "SlotInfo",
    "Source",
    "Standing",
    "Submission",
    "Suspicion",
    "TaskOptions",
    "Ticket",
    "Unlimited",
    "UpkeepDone",
    "UpkeepRules",
    "UserUsage",
    "Wanted",
    "WorkerInfo",
    "looks",
]
