"""Every key of the settings, its type and its default; `purpose` says what each is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

TEN_YEARS_SECS = 10 * 365 * 86_400

# An error quotes the description as the expected value; keep it in step with the bounds beside it.
Text = Annotated[str, Meta(min_length=1, description="text that is not empty")]
Count = Annotated[int, Meta(ge=0, le=10**9, description="a whole number from 0 to 1000000000")]
AtLeastOne = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 1000000000")]
Processes = Annotated[Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="a whole number from 1 to 1000")]
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
OnFull = Annotated[Literal["refuse", "drop"], Meta(description='"refuse" or "drop"')]
OptionalText = Annotated[Text | None, Meta(description="text that is not empty")]
Addresses = Annotated[tuple[Text, ...], Meta(description="a list of e-mail addresses")]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Names = Annotated[tuple[Name, ...], Meta(description="a list of names")]
Port = Annotated[int, Meta(ge=0, le=65_535, description="a whole number from 0 (any free port) to 65535")]
HttpAddress = Annotated[
    str,
    Meta(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?\Z", description="an address such as https://qo.example.com/queue"),
]
Origin = Annotated[str, Meta(pattern=r"^https?://[^/?#\s]+\Z")]
Origins = Annotated[tuple[Origin, ...], Meta(description='a list of origins such as "https://example.com"')]
IpAddresses = Annotated[tuple[Text, ...], Meta(description="a list of IP addresses")]
NAME_EXPECTED = "1 to 200 characters, none of them a control character"
Namespace = Annotated[Name, Meta(description=NAME_EXPECTED)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class StoreSettings(_Section, frozen=True, kw_only=True):
    url: Text = "sqlite:///qo.db"
    namespace: Namespace = "default"
    accept_eviction: bool = False


class ConcurrencySettings(_Section, frozen=True, kw_only=True):
    """`limits` are those of the configuration: an operator's limit wins over them, they win over all others.

    The slots of `shared_groups` are kept in the bucket `store`, for all queues that name it.
    """

    default_lease_duration_secs: Seconds = 300
    renewals_per_lease: AtLeastOne = 3
    semaphore_lease_duration_secs: Seconds = 3600
    limits: Mapping[Name, Count] = field(default_factory=dict)
    store: OptionalText = None
    shared_groups: Names = ()


class Tier(_Section, frozen=True, kw_only=True):
    """The numbers of one tier. A new tier has those of `bootstrapper` where it does not name its own."""

    per_user: Count = 2
    per_project: Count = 2
    jobs_per_day: AtLeastOne = 5
    boost: Boost = 0
    iterations: AtLeastOne = 2
    iteration_batches: AtLeastOne = 3
    first_guess_secs: Seconds = 480

    @property
    def max_iterations(self) -> int:
        """A job fails after this many iterations, however often it is confirmed."""
        return self.iterations * self.iteration_batches


BUILT_IN_TIERS = {
    "bootstrapper": Tier(),
    "partner": Tier(per_user=3, per_project=3, jobs_per_day=50, boost=2, iterations=3, first_guess_secs=600),
    "cto_scale": Tier(per_user=10, per_project=5, jobs_per_day=200, boost=5, iterations=5, first_guess_secs=900),
}


class QueueSettings(_Section, frozen=True, kw_only=True):
    """The line, its cap and quota, and how long ended jobs and the audit trail are kept."""

    cap: Count = 100
    cap_applies_to: CapAppliesTo = "tiered"
    retry_after_step_secs: Seconds = 900
    quota_jitter_secs: UpToAnHour = 3600
    default_priority: Priority = "normal"
    aging_period_secs: SecondsOrOff = 3600
    turn_after: Count = 8
    max_payload_bytes: PayloadBytes = 1_048_576
    retention_days: Days | None = None
    retention_jobs: Count = 100_000
    audit_entries: Count | None = None
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
    processes: Processes = None
    jobs_per_process: AtLeastOne = 100


class ConfirmationSettings(_Section, frozen=True, kw_only=True):
    """Both times count from the moment at which a job became `confirming`."""

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
    """`env_defaults` are the limits of `Limiter.from_env()` for unset variables `LLM_MAX_CONCURRENCY_<NAME>`."""

    waiter_alive_secs: Seconds = 15
    env_defaults: Mapping[Name, Count] = field(default_factory=PROVIDER_LIMITS.copy)


class StreamSettings(_Section, frozen=True, kw_only=True):
    position_every_secs: Seconds = 5
    heartbeat_every_secs: Seconds = 15


class ServerSettings(_Section, frozen=True, kw_only=True):
    """The HTTP service of `qo serve` and `qo up`. Without keys it serves its own machine only."""

    host: Text = "127.0.0.1"
    port: Port = 8765
    public_url: HttpAddress | None = None
    hosts: Names = ()
    trusted_proxies: IpAddresses = ()
    cors_origins: Origins = ()
    widget_origins: Origins = ()
    user_tasks: Names = ()
    user_best_priority: Priority = "urgent"
    default_tier: Name | None = None
    watch_link_days: Days = 7


class HistorySettings(_Section, frozen=True, kw_only=True):
    """Where the history of a queue on Redis is written: `postgresql://user:password@host:5432/database`."""

    url: Secret = None
    keep_days: AtLeastOne = 90
    payloads: bool = False
    on_full: OnFull = "refuse"
    outbox_max: AtLeastOne = 1_000_000

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Settings are printed and logged; the url has a password.
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, "(hidden)" if name == "url" and value else value) for name, value in fields]

    def __repr__(self) -> str:
        return f"HistorySettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class NotifySettings(_Section, frozen=True, kw_only=True):
    """Reminders about jobs that wait for a confirmation: by webhook, by e-mail, both, or by default not at all.

    `smtp_url` is `smtp://user:password@host:587` or `smtps://user:password@host:465`. `timeout_secs` is for
    one whole attempt. The notifier checks that the keys fit together.
    """

    webhook_url: Secret = None
    webhook_secret: Secret = None
    email_to: Addresses = ()
    email_from: OptionalText = None
    smtp_url: Secret = None
    timeout_secs: Seconds = 10
    attempts: AtLeastOne = 3

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Settings are printed and logged. Secrets are not, nor are urls, which may contain one.
        hidden = {"webhook_url", "webhook_secret", "smtp_url"}
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, "(hidden)" if name in hidden and value else value) for name, value in fields]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"NotifySettings({fields})"


class Settings(_Section, frozen=True, kw_only=True):
    """All settings. `load_settings` makes and checks them; the constructor checks nothing."""

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
    server: ServerSettings = ServerSettings()
    history: HistorySettings = HistorySettings()
    notify: NotifySettings = NotifySettings()
