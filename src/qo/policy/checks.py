"""Checks of single values: names, numbers, groups, payloads. `store/check.py` checks whole operations with them.

Each raises an `InvalidValue`, or a kind of it, that names the field and says what to use instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from reprlib import Repr

import msgspec

from qo.errors import InvalidPriority, InvalidValue, PayloadTooLarge
from qo.job import JobError, State
from qo.policy.actor import SEPARATOR, Actor, parts_of
from qo.policy.groups import GLOBAL, KINDS, MOST_GROUPS, PROVIDERS, RECORDER
from qo.policy.ordering import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_BOOST
from qo.values import Average, Source, Standing

MAX_NAME_CHARACTERS = 200
MAX_AVERAGE_NAME_CHARACTERS = 250
"""Longer than a name, because the average of a task or a tier has a prefix before its name."""
MAX_PAYLOAD_BYTES = 1024 * 1024
"""The largest payload, result or checkpoint, as JSON."""
MAX_TEXT_BYTES = 10 * 1024
"""The longest message or progress text, in UTF-8."""
MAX_WHOLE_NUMBER = 2**53
"""The largest whole number that every store holds exactly."""
MAX_QUOTA_JITTER_MS = 3_600_000
MAX_COUNT = 2**31 - 1
"""The most slots, capacity, attempts and the like: the largest plain integer of every store."""
MAX_SPAN_MS = 100 * 366 * 86_400_000
MAX_TIME_MS = 253_370_764_800_000
"""The beginning of the year 9999, the last that Python's datetime holds."""

# A caller may name a provider, which is a thing; the other kinds follow from a job's own fields.
KINDS_OF_THE_STORE = frozenset(KINDS) - {"provider"}
RESERVED_NAMES = frozenset({GLOBAL, PROVIDERS, RECORDER})
READINESS_TASK = "qo-readiness"
"""A server claims this task to see whether its store works. A job of it would be taken, and run by nobody."""
OUTCOMES = frozenset({State.SUCCEEDED, State.FAILED, State.SCHEDULED, State.CONFIRMING, State.CANCELLED, State.QUEUED})

CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")  # neither PostgreSQL nor UTF-8 can hold these


PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
MAX_ADDRESS_CHARACTERS = 254


def check_contact(value: object) -> None:
    """One e-mail address. The error does not repeat it: errors are logged, and an address must not be."""
    expected = f"use one plain e-mail address of at most {MAX_ADDRESS_CHARACTERS} characters, such as ann@example.com"
    if not isinstance(value, str):
        raise InvalidValue(f"contact is {type(value).__name__}; {expected}.")
    if len(value) > MAX_ADDRESS_CHARACTERS:
        raise InvalidValue(f"contact has {len(value)} characters; {expected}.")
    if not PLAIN_ADDRESS.fullmatch(value):
        raise InvalidValue(f"contact is not an e-mail address; {expected}.")


def check_name(field: str, value: object, *, longest: int = MAX_NAME_CHARACTERS) -> None:
    """An id or a name from outside: of a job, user, project, parent, worker, holder or claim."""
    if type(value) is str and 0 < len(value) <= longest and value.isprintable():
        return
    if not isinstance(value, str):
        raise InvalidValue(f"{field} is {shown(value)}; use text of 1 to {longest} characters.")
    if not value:
        raise InvalidValue(f"{field} is empty; use 1 to {longest} characters.")
    if len(value) > longest:
        raise InvalidValue(f"{field} is {shown(value)}, which has {len(value)} characters; use 1 to {longest}.")
    if wrong := CONTROL_OR_SURROGATE.search(value):
        raise InvalidValue(
            f"{field} is {shown(value)}, which has a control character or half a surrogate pair "
            f"at index {wrong.start()}; use 1 to {longest} characters without those."
        )


def check_name_or_none(field: str, value: object) -> None:
    if value is not None:
        check_name(field, value)


def check_by(by: str | None) -> None:
    """A name, or an actor as text."""
    if not isinstance(by, str) or SEPARATOR not in by:
        check_name_or_none("by", by)
    else:
        _check_actor(by)


@lru_cache(maxsize=256)  # the jobs of one request have one actor, and those of a key few
def _check_actor(by: str) -> None:
    parts = parts_of(by)
    for part in parts:
        if part:
            check_name("by", part)
    if len(parts) > len(Actor.__struct_fields__) or not parts[-1]:
        raise InvalidValue(f"by is {shown(by)}; give a name, or the text of an actor.")


def check_task(task: str) -> None:
    check_name("task", task)
    if ":" in task or task in RESERVED_NAMES:
        raise InvalidValue(
            f"task is {shown(task)}; use a name without a colon that is not {GLOBAL}, {PROVIDERS} or {RECORDER}, "
            "because those name groups that are not a task's."
        )
    if task == READINESS_TASK:
        raise InvalidValue(f"task is {shown(task)}, which servers claim to see whether the store works; use another.")


def check_group(group: str) -> None:
    """Any group that an operator or a limiter may name, also a group that follows from a job's fields."""
    if not isinstance(group, str) or ":" not in group:
        check_name("group", group)
        return
    kind, _, name = group.partition(":")
    if kind not in KINDS:
        check_name("group", group)
        return
    # The kind comes on top: whatever is allowed as a user's name must also be allowed as that user's group.
    check_name(f"name in group {kind}:", name)
    if kind == "priority" and not is_priority(name):
        raise InvalidPriority(
            f"group is {shown(group)}; use priority:{HIGHEST_PRIORITY} to priority:{LOWEST_PRIORITY}."
        )


def check_group_count(field: str, groups: Sequence[str]) -> None:
    if len(groups) > MOST_GROUPS:
        raise InvalidValue(
            f"{field} has {len(groups)} names; at most {MOST_GROUPS} are allowed. "
            "Name fewer, or one group that stands for several."
        )


def check_own_groups(groups: Sequence[str], *, of: str | None = None) -> None:
    """The groups that a submit names, or a task (`of`)."""
    check_group_count("groups" if of is None else f"groups of task {shown(of)}", listed("groups", groups))
    for group in groups:
        check_group(group)
        kind, colon, _ = group.partition(":")
        if (colon and kind in KINDS_OF_THE_STORE) or group in RESERVED_NAMES:
            prefixes = ", ".join(sorted(f"{kind}:" for kind in KINDS_OF_THE_STORE))
            raise InvalidValue(
                f"group is {shown(group)}, which is reserved; use a name of your own, which is not "
                f"{GLOBAL}, {PROVIDERS} or {RECORDER} and begins with none of {prefixes} "
                "(jobs get those by themselves)."
            )


def check_priority(priority: int) -> None:
    if type(priority) is int and HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        return
    if not is_number(priority, HIGHEST_PRIORITY, LOWEST_PRIORITY):
        raise InvalidPriority(
            f"priority is {shown(priority)}; use a whole number from {HIGHEST_PRIORITY} (soonest) to {LOWEST_PRIORITY}."
        )


def check_payload(payload: bytes) -> None:
    if type(payload) is bytes and len(payload) <= MAX_PAYLOAD_BYTES:
        return
    if not isinstance(payload, bytes):
        raise InvalidValue(f"payload is {shown(payload)}; give the JSON as bytes.")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payload has {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are allowed. "
            "Keep the data elsewhere and submit where to find it."
        )


def check_standing(standing: Standing) -> None:
    check_name("tier", standing.tier)
    check_number("boost", standing.boost, 0, MAX_BOOST)
    for field in ("user_limit", "project_limit"):
        slots = getattr(standing, field)
        if slots is not None:
            check_number(field, slots, 0)
    # With 0 a day, no day would ever have room. To let a user run nothing, set a limit of 0 or pause the group.
    for field in ("daily_quota", "iterations_batch", "iterations_max"):
        number = getattr(standing, field)
        if number is not None:
            check_number(field, number, 1)


def check_closed(closed: Mapping[str, int]) -> None:
    for group, closed_ms in closed.items():
        check_group(group)
        check_number("closed of group", closed_ms, 0, MAX_SPAN_MS, of=group)


def check_average(average: Average) -> None:
    check_name("name of an average", average.name, longest=MAX_AVERAGE_NAME_CHARACTERS)
    check_finite("first", average.first)
    check_finite("weight", average.weight)
    if not 0 <= average.weight <= 1:
        raise InvalidValue(f"weight is {shown(average.weight)}; use a number from 0 to 1.")


def check_job_error(error: JobError) -> None:
    check_text("error.message", error.message)
    check_text("error.detail", error.detail)
    check_text("error.debug_id", error.debug_id)


def check_number(field: str, value: object, lowest: int, highest: int = MAX_COUNT, *, of: str | None = None) -> None:
    if type(value) is int and lowest <= value <= highest:
        return
    if not is_number(value, lowest, highest):
        whose = "" if of is None else f" {shown(of)}"
        raise InvalidValue(f"{field}{whose} is {shown(value)}; use a whole number from {lowest} to {highest}.")


def is_number(value: object, lowest: int, highest: int) -> bool:
    """Whether it is a whole number within the bounds. True and False are numbers to Python, but never meant as such."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def is_priority(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text and int(text) <= LOWEST_PRIORITY


def check_outcome_state(state: object) -> None:
    if not isinstance(state, State) or state not in OUTCOMES:
        allowed = ", ".join(sorted(OUTCOMES))
        raise InvalidValue(f"state is {shown(state)}; use a State that a run may end in: {allowed}.")


def check_source(source: object) -> None:
    if not isinstance(source, Source):
        allowed = ", ".join(one.name for one in Source)
        raise InvalidValue(f"source is {shown(source)}; use a Source: {allowed}.")


def check_seconds(field: str, value: object) -> None:
    """Seconds to wait, which may be infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidValue(f"{field} is {shown(value)}; use seconds of 0 or more (math.inf waits without end).")


def check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidValue(f"{field} is {shown(value)}; use True or False.")


def check_finite(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{field} is {shown(value)}; use a finite number.")
    if isinstance(value, int) and abs(value) > MAX_WHOLE_NUMBER:
        raise InvalidValue(f"{field} is {shown(value)}; use a whole number of at most {MAX_WHOLE_NUMBER}, or a float.")
    if not isfinite(value):
        raise InvalidValue(f"{field} is {shown(value)}; use a finite number.")


def check_text(field: str, value: object) -> None:
    """Free text, of one or several lines, or None."""
    if value is None or (type(value) is str and len(value) <= MAX_TEXT_BYTES // 4 and value.isprintable()):
        return
    if not isinstance(value, str):
        raise InvalidValue(f"{field} is {shown(value)}; use text.")
    if wrong := NOT_STORABLE.search(value):
        raise InvalidValue(
            f"{field} is {shown(value)}, which has a NUL or half a surrogate pair at index {wrong.start()}; "
            "use text without those."
        )
    if (size := len(value.encode())) > MAX_TEXT_BYTES:
        raise InvalidValue(f"{field} has {size} bytes; use at most {MAX_TEXT_BYTES}, and keep longer texts elsewhere.")


def check_result(result: object) -> None:
    """A result is decoded, unlike a payload, whenever its job is read: a bad result would break every list of jobs."""
    if not isinstance(result, bytes):
        raise InvalidValue(f"result is {shown(result)}; give the JSON as bytes.")
    check_bytes("result", result)
    try:
        msgspec.json.decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise InvalidValue(f"result is {shown(result)}, which is not JSON ({wrong}); give JSON as bytes.") from None


def check_bytes(field: str, value: object) -> None:
    if value is not None and not isinstance(value, bytes):
        raise InvalidValue(f"{field} is {shown(value)}; give the JSON as bytes.")
    if value is not None and len(value) > MAX_PAYLOAD_BYTES:
        raise InvalidValue(
            f"{field} is {len(value)} bytes of JSON; at most {MAX_PAYLOAD_BYTES} are allowed. "
            "Keep the data elsewhere and save where to find it."
        )


def listed(field: str, names: Sequence[str]) -> Sequence[str]:
    """The names, unless they are a single text, which would be taken letter by letter."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidValue(f"{field} is {shown(names)}; give a list of names.")
    return names


_short = Repr()
_short.maxstring = _short.maxother = 60


def shown(value: object) -> str:
    return _short.repr(value)
