"""Every number of qo that can be changed, its default, and where a change comes from.

The nearest `.qo.toml` upwards is overridden by the environment, that by code. Every key has a default,
so each source says only what it changes.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field, inspect

from qo.errors import SettingsError
from qo.settings_paths import is_known, known_paths

FILE_NAME = ".qo.toml"
ENVIRONMENT_PREFIX = "QO_"
NOT_SETTINGS = frozenset({"QO_REDIS_SERVER", "QO_VALKEY_SERVER"})
"""variables of qo's own tests: the servers they start"""
SQLITE_URL = "sqlite:///"
REFUSALS = (msgspec.ValidationError, UnicodeEncodeError)  # the second for bytes that are no UTF-8
TEN_YEARS_SECS = 10 * 365 * 86_400

# A description is what the error says was expected; keep it true to the bounds beside it.
Text = Annotated[str, Meta(min_length=1, description="text that is not empty")]
Count = Annotated[int, Meta(ge=0, le=10**9, description="a whole number from 0 to 1000000000")]
AtLeastOne = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 1000000000")]
Boost = Annotated[int, Meta(ge=0, le=63, description="a whole number of places from 0 to 63")]
Seconds = Annotated[float, Meta(gt=0, le=TEN_YEARS_SECS, description="seconds above 0, at most ten years")]
SecondsOrOff = Annotated[float, Meta(ge=0, le=TEN_YEARS_SECS, description="seconds, 0 to ten years")]
UpToAnHour = Annotated[float, Meta(ge=0, le=3600, description="seconds, 0 to 3600")]
Days = Annotated[float, Meta(ge=0, le=3650, description="days, 0 to 3650")]
Hours = Annotated[float, Meta(gt=0, le=87_600, description="hours above 0, at most 87600")]
ListOfHours = Annotated[tuple[Hours, ...], Meta(description="a list of hours above 0, at most 87600")]
Share = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")]
PositiveShare = Annotated[float, Meta(gt=0, le=1, description="a share above 0, at most 1")]
Multiplier = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Priority = Annotated[
    Annotated[int, Meta(ge=0, le=99)] | Literal["urgent", "high", "normal", "low", "background"],
    Meta(description="a whole number from 0 to 99, or urgent, high, normal, low or background"),
]
Secret = Annotated[
    Text | None, Meta(description="text that is not empty", extra={"secret": True})  # a refusal does not show it
]
PayloadBytes = Annotated[int, Meta(ge=1, le=1_048_576, description="a whole number of bytes from 1 to 1048576")]
CapAppliesTo = Annotated[Literal["tiered", "all"], Meta(description='"tiered" or "all"')]
OptionalText = Annotated[Text | None, Meta(description="text that is not empty")]
Addresses = Annotated[tuple[Text, ...], Meta(description="a list of e-mail addresses")]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Names = Annotated[tuple[Name, ...], Meta(description="a list of names")]
NAME_EXPECTED = "1 to 200 characters, none of them a control character"
Namespace = Annotated[Name, Meta(description=NAME_EXPECTED)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class StoreSettings(_Section, frozen=True, kw_only=True):
    url: Text = "sqlite:///qo.db"
    namespace: Namespace = "default"
    accept_eviction: bool = False


class ConcurrencySettings(_Section, frozen=True, kw_only=True):
    """`limits` are those of the configuration: an operator's win over them, all others give way. The slots of
    `shared_groups` are kept in the bucket `store`, for all queues that name it."""

    default_lease_duration_secs: Seconds = 300
    renewals_per_lease: AtLeastOne = 3
    semaphore_lease_duration_secs: Seconds = 3600
    limits: Mapping[Name, Count] = field(default_factory=dict)
    store: OptionalText = None
    shared_groups: Names = ()


class Tier(_Section, frozen=True, kw_only=True):
    """The numbers of one tier. A tier of a new name has those of `bootstrapper` where it names none."""

    per_user: Count = 2
    per_project: Count = 2
    jobs_per_day: AtLeastOne = 5
    boost: Boost = 0
    iterations: AtLeastOne = 2
    iteration_batches: AtLeastOne = 3
    first_guess_secs: Seconds = 480

    @property
    def max_iterations(self) -> int:
        """After how many iterations a job fails, however often it is confirmed."""
        return self.iterations * self.iteration_batches


BUILT_IN_TIERS = {
    "bootstrapper": Tier(),
    "partner": Tier(per_user=3, per_project=3, jobs_per_day=50, boost=2, iterations=3, first_guess_secs=600),
    "cto_scale": Tier(per_user=10, per_project=5, jobs_per_day=200, boost=5, iterations=5, first_guess_secs=900),
}


class QueueSettings(_Section, frozen=True, kw_only=True):
    """The line, its door, and how long what has ended is kept. `aging_period_secs` 0 turns aging off."""

    cap: Count = 100
    cap_applies_to: CapAppliesTo = "tiered"
    retry_after_step_secs: Seconds = 900
    quota_jitter_secs: UpToAnHour = 3600
    default_priority: Priority = "normal"
    aging_period_secs: SecondsOrOff = 3600
    max_payload_bytes: PayloadBytes = 1_048_576
    retention_days_sql: Days = 7
    retention_days_redis: Days = 1
    retention_jobs: Count = 100_000
    audit_entries_sql: Count = 1_000_000
    audit_entries_redis: Count = 100_000
    upgrade_url: Annotated[Text | None, Meta(description="text that is not empty")] = None


class RetrySettings(_Section, frozen=True, kw_only=True):
    max_attempts: AtLeastOne = 3
    first_delay_secs: SecondsOrOff = 1
    delay_multiplier: Multiplier = 2
    max_delay_secs: SecondsOrOff = 600
    jitter: Share = 0.2


class WorkerSettings(_Section, frozen=True, kw_only=True):
    concurrency: AtLeastOne = 100
    grace_secs: SecondsOrOff = 30


class ConfirmationSettings(_Section, frozen=True, kw_only=True):
    """Both count from the moment a job became `confirming`."""

    expires_after_hours: Hours = 24
    reminders_after_hours: ListOfHours = (12, 23)


class EstimateSettings(_Section, frozen=True, kw_only=True):
    newest_weight: PositiveShare = 0.3
    first_guess_secs: Seconds = 600
    spread: Share = 0.3
    medium_confidence_below_position: Count = 10
    learnt_coverage: PositiveShare = 0.8


PROVIDER_LIMITS = {"ollama": 4, "gemini": 8, "openai": 10, "deepseek": 8, "global": 12}


class LimiterSettings(_Section, frozen=True, kw_only=True):
    """`env_defaults` are what `Limiter.from_env()` takes for an unset `LLM_MAX_CONCURRENCY_<NAME>`."""

    waiter_alive_secs: Seconds = 15
    env_defaults: Mapping[Name, Count] = field(default_factory=PROVIDER_LIMITS.copy)


class StreamSettings(_Section, frozen=True, kw_only=True):
    position_every_secs: Seconds = 5
    heartbeat_every_secs: Seconds = 15


class NotifySettings(_Section, frozen=True, kw_only=True):
    """Where reminders about jobs that wait for a confirmation go: a webhook, e-mail, both or, as it is, nowhere.

    `smtp_url` is `smtp://user:password@host:587` or `smtps://user:password@host:465`. `timeout_secs` is for
    one whole attempt. What fits together is checked where the notifier is made.
    """

    webhook_url: Secret = None
    webhook_secret: Secret = None
    email_to: Addresses = ()
    email_from: OptionalText = None
    smtp_url: Secret = None
    timeout_secs: Seconds = 10
    attempts: AtLeastOne = 3

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Settings get printed and logged; a secret does not, nor an address, which may hold one.
        hidden = {"webhook_url", "webhook_secret", "smtp_url"}
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, "(hidden)" if name in hidden and value else value) for name, value in fields]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"NotifySettings({fields})"


class Settings(_Section, frozen=True, kw_only=True):
    """All of them. Made by `load_settings`, which checks; building one by hand checks nothing."""

    store: StoreSettings = StoreSettings()
    concurrency: ConcurrencySettings = ConcurrencySettings()
    tiers: Mapping[Name, Tier] = field(default_factory=BUILT_IN_TIERS.copy)
    queue: QueueSettings = QueueSettings()
    retries: RetrySettings = RetrySettings()
    worker: WorkerSettings = WorkerSettings()
    confirmation: ConfirmationSettings = ConfirmationSettings()
    estimate: EstimateSettings = EstimateSettings()
    limiter: LimiterSettings = LimiterSettings()
    stream: StreamSettings = StreamSettings()
    notify: NotifySettings = NotifySettings()


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The defaults, changed by the nearest `.qo.toml`, then the environment, then `overrides`.

    `overrides` is nested like the file: `{"queue": {"cap": 5}}`. A table changes only the keys it names,
    also inside a built-in tier. Raises `SettingsError`, naming source and key, for the first key that
    is unknown or whose value is not allowed.
    """
    values: dict[str, Any] = msgspec.to_builtins(Settings())
    file = find_settings_file(Path.cwd() if directory is None else directory)
    if file is not None:
        _merge(values, _anchored(_checked(_read_file(file), source=str(file)), file.parent))
    _merge(values, read_environment(os.environ if environ is None else environ))
    _merge(values, _checked(overrides or {}, source="Settings given in code"))
    return msgspec.convert(values, Settings)


def find_settings_file(directory: Path) -> Path | None:
    """The `.qo.toml` in `directory` or the nearest of its parents that has one."""
    directory = directory.resolve()
    candidates = (folder / FILE_NAME for folder in (directory, *directory.parents))
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the environment sets, nested like the file.

    `QO_SECTION__KEY` is a setting: names are lower-cased, `__` goes one level down, and among the limits
    stands for the colon (`QO_CONCURRENCY__LIMITS__PROVIDER__OLLAMA`). `QO_URL` is `store.url` and wins over
    `QO_STORE__URL`. A list is written as in TOML. An empty value counts as unset. Any other name that begins
    with `QO_` is an error, except those of `NOT_SETTINGS`.
    """
    values: dict[str, Any] = {}
    # QO_URL sorts behind QO_STORE__URL, so it is merged over it.
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS or not text:
            continue
        path = _path_of(variable)
        if not is_known(path, inspect.type_info(Settings)):
            raise SettingsError(_unknown_variable(variable, path))
        named = _nested(path, _parse_list(text) if text.startswith("[") else text)
        _merge(values, _checked(named, source=variable, strict=False))
    return values


def _path_of(variable: str) -> tuple[str, ...]:
    if variable == "QO_URL":
        return ("store", "url")
    path = tuple(variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
    if path[:2] == ("concurrency", "limits") and len(path) > 2:
        return (*path[:2], ":".join(path[2:]))
    return path


def _unknown_variable(variable: str, path: tuple[str, ...]) -> str:
    nearest = get_close_matches(variable, ["QO_URL", *sorted(_all_variables(path))], n=1, cutoff=0.0)[0]
    return (
        f"{variable} is no setting; the nearest is {nearest} ({_dotted(_path_of(nearest))}). Name it so, or unset it."
    )


def _all_variables(path: tuple[str, ...]) -> Iterator[str]:
    for known in known_paths(inspect.type_info(Settings), names_from=path):
        yield ENVIRONMENT_PREFIX + "__".join(known).upper()


def _parse_list(text: str) -> Any:
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except tomllib.TOMLDecodeError:
        return text  # the check that follows names the variable and what was expected


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A file named by `.qo.toml` lies beside it, in whatever folder below it a program is started."""
    url = values.get("store", {}).get("url", "")
    path = url.removeprefix(SQLITE_URL)
    if url.startswith(SQLITE_URL) and not path.startswith("/"):
        values["store"]["url"] = f"{SQLITE_URL}{folder}/{path}"
    return values


def _checked(values: Mapping[str, Any], *, source: str, strict: bool = True) -> dict[str, Any]:
    """The same values in the settings' types. The environment is not strict: there, numbers are text.

    Every key is checked alone, because msgspec does not name the entry of a mapping that it refuses.
    """
    checked: dict[str, Any] = {}
    for path, value in _leaves(values):
        try:
            typed = msgspec.convert(_nested(path, value), Settings, strict=strict)
        except REFUSALS as error:
            raise SettingsError(f"{source}: {_refusal(path, values)}") from error
        if isinstance(value, Mapping):
            _merge(checked, _nested(path, {}))  # an empty table changes nothing, but may name a new tier
        else:
            _merge(checked, _nested(path, _value_at(msgspec.to_builtins(typed), path)))
    return checked


def _refusal(path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """Which key of `path` is wrong, its value and what was expected, from the types of `Settings`."""
    here: Any = inspect.type_info(Settings)
    known = path
    for depth, key in enumerate(path):
        if isinstance(here, inspect.StructType):
            types = {each.encode_name: each.type for each in here.fields}
            if key not in types:
                return f"{_dotted(path[: depth + 1])} is no setting; expected one of {', '.join(types)}."
            here = types[key]
        elif isinstance(here, inspect.DictType):
            if not _is_name(key):
                return f"{_dotted(path[: depth + 1])} is no name; expected {NAME_EXPECTED}."
            here = here.value_type
        else:
            known = path[:depth]
            break
    described = isinstance(here, inspect.Metadata) and here.extra_json_schema
    expected = described["description"] if described else "a table"
    is_secret = isinstance(here, inspect.Metadata) and bool(here.extra)
    value = "not allowed" if is_secret else repr(_value_at(values, known))
    return f"{_dotted(known)} is {value}; expected {expected}."


def _is_name(key: str) -> bool:
    try:
        msgspec.convert(key, Name)
    except REFUSALS:
        return False
    return True


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(f"{key}" if f"{key}".replace("_", "").isalnum() else repr(key) for key in path)


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that is no table, and every empty table, with its path."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {first: _nested(tuple(rest), value) if rest else value}


def _value_at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def _merge(onto: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(onto.get(key), dict):
            _merge(onto[key], value)
        else:
            onto[key] = value
