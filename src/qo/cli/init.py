"""`qo init`: a settings file to start from, written from the settings' own types and defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from qo.cli.options import Target, store_options
from qo.cli.output import say, show_json
from qo.settings import FILE_NAME, Settings

FIRST_LIMITS = {"global": 5}

HEADER = """\
# Settings of qo. Every key stands here with its default: delete what you do not change.
# The environment wins over this file (QO_URL for the store, QO_QUEUE__CAP=50 for cap under [queue]),
# and what a program says in code wins over both."""

NOTES = {
    "store.url": "Where jobs and limits live: sqlite:///path (from where this file lies), redis://host:6379/0, or memory://.",
    "store.accept_eviction": "Whether to use a Redis server that throws keys away when its memory is full.",
    "store.namespace": "Queues of different names on one store know nothing of each other.",
    "concurrency.default_lease_duration_secs": "How long a job keeps its slots after its worker was last heard of.",
    "concurrency.renewals_per_lease": "How often a worker is heard of in that time.",
    "concurrency.semaphore_lease_duration_secs": "The same for user_semaphore and project_semaphore.",
    "concurrency.store": "A bucket, s3://name/prefix, that keeps the slots of shared_groups for several queues.",
    "concurrency.shared_groups": "The groups whose slots are kept there.",
    "concurrency.limits": 'How many may run at once in a group: a task\'s name, "provider:ollama", global for all.',
    "tiers.per_user": "How many jobs of one user run at once.",
    "tiers.per_project": "How many jobs of one project run at once.",
    "tiers.jobs_per_day": "How many jobs a user may start a day; what is over waits for tomorrow.",
    "tiers.boost": "How many places a job jumps ahead when it joins the line.",
    "tiers.iterations": "After how many iterations a job asks a person whether to go on.",
    "tiers.iteration_batches": "How many such batches there are before it fails.",
    "tiers.first_guess_secs": "How long a job is thought to take before one has been seen.",
    "queue.cap": "With so many jobs in line, further ones are refused.",
    "queue.cap_applies_to": "Whether that holds for users with a tier, or for everybody.",
    "queue.retry_after_step_secs": "Who is refused is told when to try again, rounded up to this.",
    "queue.quota_jitter_secs": "Jobs that wait for tomorrow are spread over so long after midnight.",
    "queue.default_priority": "The priority of a job that names none.",
    "queue.aging_period_secs": "After waiting so long a job moves up one level of priority; 0 turns that off.",
    "queue.max_payload_bytes": "How large a job's data may be, as JSON.",
    "queue.retention_days_sql": "How long jobs are kept that have ended, on SQLite and PostgreSQL.",
    "queue.retention_days_redis": "The same on Redis.",
    "queue.retention_jobs": "How many of them at most.",
    "queue.audit_entries_sql": "How much is remembered of who did what: the newest entries, in SQL stores.",
    "queue.audit_entries_redis": "The same in Redis, where they take up memory.",
    "queue.upgrade_url": "Where users can get a higher tier; shown beside their place in line.",
    "retries.max_attempts": "How often a job is tried.",
    "retries.first_delay_secs": "How long after the first failure.",
    "retries.delay_multiplier": "How much longer after each further one.",
    "retries.max_delay_secs": "But never longer than this.",
    "retries.jitter": "By how much of itself a delay is varied, so that not all come back at once.",
    "worker.concurrency": "How many jobs one worker runs at once.",
    "worker.grace_secs": "How long a stopping worker lets jobs finish before it hands them back.",
    "confirmation.expires_after_hours": "A job that nobody confirms fails after so long.",
    "confirmation.reminders_after_hours": "When to remind of it.",
    "estimate.newest_weight": "How much the newest run counts in the average duration.",
    "estimate.first_guess_secs": "How long a job without a tier is thought to take before one has been seen.",
    "estimate.spread": "How far the bounds are from the estimate.",
    "estimate.medium_confidence_below_position": "Up to which place an estimate is worth more than low confidence.",
    "estimate.learnt_coverage": "How many jobs should start within the bounds that were learnt.",
    "limiter.waiter_alive_secs": "A caller that waits for a slot and is not heard of for so long is dropped.",
    "limiter.env_defaults": "What Limiter.from_env() takes where LLM_MAX_CONCURRENCY_<NAME> is not set.",
    "stream.position_every_secs": "How often a waiting job's position is streamed at least.",
    "stream.heartbeat_every_secs": "How often a stream shows that it is alive.",
    "notify.webhook_url": "Where reminders are sent by HTTP.",
    "notify.webhook_secret": "With what they are signed.",
    "notify.email_to": "To whom they are sent by e-mail.",
    "notify.email_from": "From whom.",
    "notify.smtp_url": "By which server: smtp://user:password@host:587 or smtps://user:password@host:465.",
    "notify.timeout_secs": "How long one attempt to send may take.",
    "notify.attempts": "How many attempts there are.",
}
"""what each setting is for; what values it may have is known to its type"""

EXAMPLES = {
    "concurrency.store": "s3://my-bucket/qo",
    "queue.upgrade_url": "https://example.com/upgrade",
    "notify.webhook_url": "https://example.com/reminders",
    "notify.webhook_secret": "a long random text",
    "notify.email_from": "qo@example.com",
    "notify.smtp_url": "smtps://user:password@mail.example.com:465",
}
"""for the settings that are off: what stands behind the # that turns them on"""


@click.command()
@click.option("--force", is_flag=True, help=f"Overwrite the {FILE_NAME} that is there.")
@store_options
def init(target: Target, *, force: bool) -> None:
    """Write a commented .qo.toml into the working directory, with every setting at its default, the three tiers, and
    a first limit on everything that runs at once. --url and --namespace are written into it."""
    store = msgspec.structs.replace(Settings().store, **target.overrides()["store"])
    limited = msgspec.structs.replace(Settings().concurrency, limits=FIRST_LIMITS)
    text = settings_file(Settings(store=store, concurrency=limited))
    path = Path.cwd() / FILE_NAME
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} is there already; overwrite it with --force.") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from None
    if target.as_json:
        show_json({"path": str(path)})
    else:
        say(f"Wrote {path}: the defaults, and at most {FIRST_LIMITS['global']} jobs at once. Change what you like.")


def settings_file(settings: Settings) -> str:
    """The settings as a file that `load_settings` reads back as they are."""
    return "\n".join([HEADER, *_sections(settings)]) + "\n"


def _sections(settings: Settings) -> Iterator[str]:
    for section in settings.__struct_fields__:
        value = getattr(settings, section)
        if isinstance(value, Mapping):
            for number, (name, entry) in enumerate(value.items()):
                yield from _table(f"{section}.{_key(name)}", entry, notes=section if number == 0 else None)
        else:
            yield from _table(section, value, notes=section)


def _table(title: str, section: msgspec.Struct, *, notes: str | None) -> Iterator[str]:
    """A section; `notes` is what its notes are filed under, None where they stand above already."""
    allowed = _allowed(type(section))
    tables: list[str] = []
    yield from ("", f"[{title}]")
    for name in section.__struct_fields__:
        value = getattr(section, name)
        path = f"{notes}.{name}"
        comment = "# " + " ".join(filter(None, [NOTES.get(path), allowed.get(name)]))
        if isinstance(value, Mapping):
            tables += ["", f"[{title}.{name}]", comment]
            tables += [f"{_key(key)} = {_value(entry)}" for key, entry in value.items()]
        else:
            if notes is not None:
                yield comment
            yield f"# {name} = {_value(EXAMPLES.get(path, ''))}" if value is None else f"{name} = {_value(value)}"
    yield from tables


def _allowed(section: type[msgspec.Struct]) -> dict[str, str]:
    """Of each field with a description, which values it may have, as a sentence."""
    from msgspec import inspect

    info = inspect.type_info(section)
    assert isinstance(info, inspect.StructType)
    described = {
        field.name: field.type.extra_json_schema["description"]
        for field in info.fields
        if isinstance(field.type, inspect.Metadata) and field.type.extra_json_schema
    }
    return {name: f"{text[0].upper()}{text[1:]}." for name, text in described.items()}


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    """As TOML, which writes text, numbers and lists like JSON does."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
