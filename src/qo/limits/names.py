"""The names and limits that a limiter is given, checked and turned into groups."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from qo.errors import InvalidValue, SettingsError
from qo.limits.metrics import PROVIDER_PREFIX, TOTAL
from qo.policy.checks import MAX_COUNT, check_name, check_number, check_own_groups, shown
from qo.policy.groups import GLOBAL, KINDS, PROVIDERS

ENVIRONMENT_PREFIX = "LLM_MAX_CONCURRENCY_"
NOT_PROVIDERS = frozenset({GLOBAL, PROVIDERS, TOTAL})
"""Names of the total. A provider of such a name would be mistaken for it."""


def limits_in(environ: Mapping[str, str]) -> dict[str, int]:
    """The limits in `LLM_MAX_CONCURRENCY_<PROVIDER>`, by provider; the total as `global`. Empty ones are left out."""
    variables = {name: text for name, text in environ.items() if name.startswith(ENVIRONMENT_PREFIX)}
    return {_name_in(variable): _number_in(variable, text) for variable, text in variables.items() if text.strip()}


def provider_group(name: str) -> str:
    bare = name.removeprefix(PROVIDER_PREFIX) if isinstance(name, str) else name
    check_name("provider", bare)
    kind, colon, _ = bare.partition(":")
    if bare in NOT_PROVIDERS or (colon and kind in KINDS):
        prefixes = ", ".join(f"{kind}:" for kind in KINDS)
        raise InvalidValue(
            f"provider is {shown(name)}, which is reserved; use a name that is not {GLOBAL}, {PROVIDERS} or {TOTAL} "
            f"and begins with none of {prefixes}."
        )
    return PROVIDER_PREFIX + bare


def own_group(name: str) -> str:
    check_own_groups([name])
    if name == TOTAL:
        raise InvalidValue(f"group is {shown(name)}, which is reserved for the total over all providers; use another.")
    return provider_group(name) if name.startswith(PROVIDER_PREFIX) else name


def check_mapping(field: str, given: object) -> Mapping[str, int]:
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{field} is {shown(given)}; give limits by name, such as {{'ollama': 4}}.")
    return given


def check_limit(field: str, slots: int) -> int:
    check_number(field, slots, 0)
    return slots


def check_timeout(timeout: float) -> float | None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidValue(f"timeout is {shown(timeout)}; use seconds of 0 or more (None waits without end).")
    return timeout if timeout < threading.TIMEOUT_MAX else None


def _name_in(variable: str) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    if name == GLOBAL:
        return name
    try:
        provider_group(name)
    except InvalidValue as wrong:
        raise SettingsError(
            f"{variable} names no provider; the total is {ENVIRONMENT_PREFIX}{GLOBAL.upper()}, and any other "
            f"{ENVIRONMENT_PREFIX}<NAME> is a provider whose name is not reserved."
        ) from wrong
    return name


def _number_in(variable: str, text: str) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_COUNT)) and int(digits) <= MAX_COUNT:
        return int(digits)
    raise SettingsError(f"{variable} is {shown(text)}; expected a whole number from 0 to {MAX_COUNT}.")
