"""Wrong arguments of every public call, by call and parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import qo

NAMES = [5, object(), ["x"], b"x", "", "n" * 201, "line\nbreak", "half \ud800"]
HOLDERS = [*NAMES, "n" * 101]
GROUPS = [*NAMES, "priority:100", "user:"]
LISTS_OF_GROUPS = ["gpu", 5, [5], [""], ["user:ada"], ["global"]]
COUNTS = ["5", 1.5, True, -1, [1], math.nan, 2**31]
FROM_ONE = [*COUNTS, 0]
SPANS = ["5", True, -1, math.nan, math.inf, [1]]
ABOVE_ZERO = [*SPANS, 0]
WAITS = ["5", True, -1, math.nan, [1]]
FLAGS = ["yes", 1, None]
PRIORITIES = [100, -1, 1.5, True, "soon", [1]]
TIERS = [5, ["partner"], "", "gold"]
TEXTS = [5, ["x"], "\x00", "half \ud800", "é" * 5_121]
LONG_AGO = datetime(1900, 1, 1, tzinfo=UTC)
TIMES = [5, "2026-03-01", LONG_AGO, LONG_AGO.replace(year=2026, tzinfo=None)]
BAD_COUNTS: list[Any] = COUNTS
VARIANTS: list[Any] = [
    *(5, None, "x", [5], [{"limits": {}}], [qo.Variant()] * 6, [qo.Variant(limits=5)]),  # type: ignore[arg-type]
    *([qo.Variant(limits={"gpu": count})] for count in BAD_COUNTS),
    *([qo.Variant(limits={"user:": 1})], [qo.Variant(capacity={"nobody": 1})]),
]
QUEUES = [None, 5, "memory://"]


@dataclass(frozen=True)
class Call:
    wrong: dict[str, list[Any]] = field(default_factory=dict)
    """values that are refused, by parameter"""
    good: dict[str, Any] = field(default_factory=dict)
    """arguments that the call needs beside a wrong one, and that are right"""
    needs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """more of them, by parameter"""
    said_as: dict[str, str] = field(default_factory=dict)
    """what the refusal names, where it is not the parameter"""


JOB = {"job_id": NAMES}
TASK = Call(
    {
        "name": [*NAMES, "a:b", "global"],
        "max_concurrent": COUNTS,
        "groups": LISTS_OF_GROUPS,
        "stages": ["code", 5, [5], [""], ["running"], ["ready"], ["a", "a"]],
        "timeout": ABOVE_ZERO,
        "max_attempts": FROM_ONE,
        "process": FLAGS,
    },
    said_as={"name": "task", "groups": "group", "stages": "stage"},
)
CALLS: dict[str, Call] = {
    "connect": Call(
        {
            "url": [5, "", "nonsense://", "sqlite:/x.db", "sqlite:x.db", "sqlite:///x.db?mode=ro", "http://[", b"x"],
            "namespace": NAMES,
            "settings": [5, "x", {"nonsense": 1}, {5: 1}, {"queue": 5}],
            "timeout": WAITS,
            "clock": [5, "now", LONG_AGO],
        },
        good={"url": "memory://"},
        said_as={"settings": r"[Ss]ettings"},
    ),
    "Clock": Call({"at": TIMES}),
    "Clock.now": Call(),
    "Clock.advance": Call(dict.fromkeys(("days", "hours", "minutes", "seconds"), SPANS)),
    "Clock.advance_to": Call({"time": [*TIMES, None, LONG_AGO.replace(year=1970)]}),
    "Queue.submit": Call(
        {
            "task": [*NAMES, "a:b", "global"],
            "data": [object(), b"x", {1: 2}, math.nan, {"a": {1}}],
            "id": NAMES,
            "priority": PRIORITIES,
            "user": NAMES,
            "project": NAMES,
            "tier": TIERS,
            "parent": NAMES,
            "phase": FROM_ONE,
            "groups": LISTS_OF_GROUPS,
            "concurrency_group": [*NAMES, "global"],
            "concurrency_limit": COUNTS,
            "unique": NAMES,
            "delay": SPANS,
            "run_at": ["tomorrow", 5, LONG_AGO, LONG_AGO.replace(tzinfo=None)],
            "start_by": [*ABOVE_ZERO, LONG_AGO, LONG_AGO.replace(tzinfo=None), LONG_AGO.replace(year=2000)],
            "max_attempts": FROM_ONE,
            "timeout": ABOVE_ZERO,
            "contact": [5, "", "ann", "ann@", "Ann <ann@example.com>", "a@b\nc@d", "a" * 250 + "@b.cd", b"a@b.c"],
            "by": NAMES,
        },
        good={"task": "greet"},
        needs={"tier": {"user": "ada"}, "phase": {"parent": "p"}},
        said_as={"groups": "group", "concurrency_group": "group"},
    ),
    "Queue.submit_many": Call(
        {"jobs": [None, 5, "x", [{"task": "x"}], [None], [qo.New(5)]]},  # type: ignore[call-overload]
        said_as={"jobs": "jobs|task"},
    ),
    "Queue.get": Call(JOB),
    "Queue.jobs": Call(
        {
            "status": NAMES,
            "user": NAMES,
            "task": NAMES,
            "parent": NAMES,
            "project": NAMES,
            "tier": NAMES,
            "priority": PRIORITIES,
            "limit": FROM_ONE,
            "newest_first": FLAGS,
        }
    ),
    "Queue.parent": Call({"parent": NAMES}),
    "Queue.workers": Call(),
    "Queue.wait": Call({**JOB, "timeout": WAITS}, good={"job_id": "nobody"}),
    "Queue.result": Call({"job": NAMES, "task": [5, "x", print], "timeout": WAITS}, good={"job": "nobody"}),
    "Queue.watch": Call({**JOB, "after": COUNTS[:-1]}, good={"job_id": "nobody"}),
    "Queue.why": Call({**JOB, "for_user": NAMES}, good={"job_id": "a"}),
    "Queue.usage": Call({"user": NAMES, "tier": TIERS}, good={"user": "ada"}),
    "Queue.estimate": Call(JOB),
    "Queue.estimate_new": Call(
        {
            "task": [*NAMES, "a:b", "global"],
            "priority": PRIORITIES,
            "user": NAMES,
            "project": NAMES,
            "tier": TIERS,
            "groups": LISTS_OF_GROUPS,
        },
        good={"task": "greet"},
        needs={"tier": {"user": "ada"}},
        said_as={"groups": "group"},
    ),
    "Queue.what_if": Call({"variants": VARIANTS}),
    "Queue.timeline": Call({"group": GROUPS}),
    "Queue.analytics": Call({"minutes": FROM_ONE, "group": NAMES}),
    "Queue.audit": Call({**JOB, "limit": FROM_ONE, "after": [-1, 1.5, True, "1"]}),
    "Queue.undo": Call({"audit_id": [-1, 1.5, True, "1", None], "by": NAMES}, good={"audit_id": 1}),
    "Queue.set_priority": Call(
        {**JOB, "priority": PRIORITIES, "parent": NAMES, "by": NAMES},
        good={"job_id": "a", "priority": 5},
        needs={"parent": {"job_id": None}},
    ),
    "Queue.move": Call(
        {**JOB, "before": NAMES, "after": NAMES, "by": NAMES},
        good={"job_id": "a"},
        needs={"job_id": {"before": "b"}, "by": {"before": "b"}},
    ),
    "Queue.cancel": Call(
        {**JOB, "parent": NAMES, "message": TEXTS, "by": NAMES},
        good={"job_id": "a"},
        needs={"parent": {"job_id": None}},
    ),
    "Queue.retry": Call({**JOB, "by": NAMES}, good={"job_id": "a"}),
    "Queue.confirm": Call({**JOB, "by": NAMES}, good={"job_id": "a"}),
    "Queue.set_tier": Call({"user": NAMES, "tier": TIERS, "by": NAMES}, good={"user": "ada", "tier": "partner"}),
    "Queue.pause": Call({"group": GROUPS, "by": NAMES}, good={"group": "gpu"}),
    "Queue.resume": Call({"group": GROUPS, "by": NAMES}, good={"group": "gpu"}),
    "Queue.set_limit": Call(
        {"group": GROUPS, "slots": COUNTS, "by": NAMES},
        good={"group": "gpu", "slots": 1},
        said_as={"slots": "limit of group 'gpu'"},
    ),
    "Queue.remove_limit": Call({"group": GROUPS, "by": NAMES}, good={"group": "gpu"}),
    "Queue.limit": Call({"group": GROUPS}),
    "Queue.limits": Call(),
    "Queue.release_slot": Call(
        {"group": GROUPS, "slot_id": COUNTS, "by": NAMES, "force": FLAGS}, good={"group": "gpu", "slot_id": 0}
    ),
    "Queue.close": Call(),
    "Worker": Call({"queue": QUEUES, "name": NAMES, "concurrency": FROM_ONE, "tasks": [5, [5], [print], None]}),
    "Worker.task": TASK,
    "task": TASK,
    "Worker.lifespan": Call({"function": [5, None, print]}, said_as={"function": "lifespan"}),
    "Worker.around": Call({"function": [5, None, print]}, said_as={"function": "around"}),
    "Worker.cron": Call(
        {
            "expression": ["every day", 5, None, "0 0 3 * * *", "@daily", "0 0 31 2 *"],
            "task": [*NAMES, "a:b"],
            "data": [object(), {"a": b"x"}],
            "name": NAMES,
        },
        good={"expression": "0 3 * * *", "task": "clean"},
    ),
    "Worker.run": Call(),
    "Worker.run_until_idle": Call(),
    "Worker.stop": Call(),
    "Worker.stop_now": Call(),
    "Limiter": Call(
        {
            "limits": [5, ["a"], {"": 1}, {"a": -1}, {5: 1}],
            "total": COUNTS,
            "groups": [5, ["a"], {"": 1}, {"a": -1}, {"global": 1}],
            "queue": QUEUES[1:],
            "strict": FLAGS,
        },
        said_as={"limits": "limit|provider", "groups": "group"},
    ),
    "Limiter.from_env": Call(
        {"environ": [5, ["A"], "x"], "queue": QUEUES[1:], "strict": FLAGS},
        needs={"queue": {"environ": {}}, "strict": {"environ": {}}},
    ),
    "Limiter.acquire": Call(
        {"provider": [5, "", ["a"], b"x"], "groups": LISTS_OF_GROUPS, "timeout": WAITS, "priority": PRIORITIES},
        good={"provider": "ollama"},
        needs={"groups": {"provider": None}},
        said_as={"groups": "group"},
    ),
    "Limiter.set_limit": Call(
        {"provider": NAMES, "slots": COUNTS},
        good={"provider": "ollama", "slots": 1},
        said_as={"slots": "limit of provider 'ollama'"},
    ),
    "Limiter.set_group_limit": Call(
        {"group": NAMES, "slots": COUNTS},
        good={"group": "gpu", "slots": 1},
        said_as={"slots": "limit of group 'gpu'"},
    ),
    "Limiter.set_total": Call({"slots": COUNTS}, said_as={"slots": "total"}),
    "Limiter.get_metrics": Call(),
    "Limiter.samples": Call(),
    "Limiter.collector": Call(),
    "Limiter.collector_of": Call({"limiters": [5, {"a": 1}, {5: qo.Limiter()}]}),
    "Limiter.close": Call(),
    "user_semaphore": Call(
        {"queue": QUEUES, "user_id": NAMES, "tier": TIERS}, good={"user_id": "ada", "tier": "partner"}
    ),
    "project_semaphore": Call(
        {"queue": QUEUES, "project_id": NAMES, "tier": TIERS}, good={"project_id": "site", "tier": "partner"}
    ),
    "Semaphore.acquire": Call({"holder": HOLDERS, "timeout": WAITS}, good={"holder": "ann"}),
    "Semaphore.release": Call({"holder": HOLDERS}),
    "Semaphore.count": Call(),
    "Semaphore.heartbeat": Call({"holder": HOLDERS}),
    "Semaphore.cleanup": Call(),
    "ConcurrencyManager": Call({"slots": QUEUES}, said_as={"slots": "slots|queue"}),
    "ConcurrencyManager.open": Call({"url": [5, "", "nonsense://"], "namespace": NAMES}, good={"url": "memory://"}),
    "ConcurrencyManager.try_acquire": Call(
        {"group": GROUPS, "limit": COUNTS, "holder": HOLDERS, "worker_id": NAMES, "lease": ABOVE_ZERO},
        good={"group": "gpu", "limit": 1, "holder": "ann"},
    ),
    "ConcurrencyManager.release": Call(
        {"group": GROUPS, "slot_id": COUNTS, "holder": HOLDERS}, good={"group": "gpu", "slot_id": 0, "holder": "ann"}
    ),
    "ConcurrencyManager.extend_lease": Call(
        {"group": GROUPS, "slot_id": COUNTS, "holder": HOLDERS, "additional": ABOVE_ZERO},
        good={"group": "gpu", "slot_id": 0, "holder": "ann", "additional": 5},
    ),
    "ConcurrencyManager.cleanup_expired": Call({"group": GROUPS}),
    "ConcurrencyManager.get_status": Call({"group": GROUPS}),
    "ConcurrencyManager.close": Call(),
    "WaitTimeEstimator": Call({"queue": QUEUES}),
    "WaitTimeEstimator.record_completion": Call(
        {"tier": TIERS, "duration_seconds": SPANS}, good={"tier": "partner", "duration_seconds": 1}
    ),
    "WaitTimeEstimator.estimate_with_confidence": Call(
        {"tier": TIERS, "position": FROM_ONE, "active_workers": COUNTS},
        good={"tier": "partner", "position": 1, "active_workers": 1},
    ),
    "Context.stage": Call(
        {"name": [5, "", ["code"], "other"], "message": TEXTS}, good={"name": "code"}, said_as={"name": "'code'"}
    ),
    "Context.progress": Call(
        {"done": ["5", True, math.nan, math.inf, None, 10**400], "total": ["5", True, math.nan, [1]], "text": TEXTS},
        good={"done": 1},
    ),
    "Context.save": Call({"checkpoint": [object(), b"x", {1: 2}, math.nan, "x" * 2**20]}),
    "Context.extend_lease": Call({"seconds": SPANS}),
    "Context.iterations": Call(),
    "Retry": Call({"after": SPANS}),
    "verify_webhook": Call(
        {
            "secret": [5, None, "", b"key", "whsec_%"],
            "headers": [5, None, ["a"], {"webhook-id": 5}, {b"webhook-id": "a"}],
            "body": ["text", 5, None],
            "now": [5, "today", datetime(2026, 1, 1)],  # noqa: DTZ001 - a time without a zone is what is wrong
            "tolerance_secs": ["5", -1, math.nan, None],
        },
        good={"secret": "key", "headers": {}, "body": b""},
    ),
}
NOT_FOR_CALLERS = {
    *("Queue.configured_limits", "Queue.warn_of_ignored", "Queue.check_loop", "Retry.message"),
    *("Queue.admit", "Queue.admit_each", "Queue.jobs_page"),
}
"""what parts of qo ask of each other; and a message, which may be anything"""
