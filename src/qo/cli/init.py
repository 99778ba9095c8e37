"""`qo init`: a first settings file, written from the settings' types, defaults and purposes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from qo.cli.options import Target, store_options
from qo.cli.output import show_json
from qo.cli.terminal import say
from qo.settings import FILE_NAME, PURPOSES, Settings

FIRST_LIMITS = {"global": 5}

HEADER = """\
# Settings of qo. Every key is here with its default; you may delete the ones you do not change.
# An environment variable wins over this file (QO_URL for the store, QO_QUEUE__CAP=50 for cap under [queue]),
# and settings that a program passes to qo.connect win over both."""

EXAMPLES: dict[str, str | int] = {
    "concurrency.store": "s3://my-bucket/qo",
    "queue.retention_days": 7,
    "queue.audit_entries": 1_000_000,
    "worker.processes": 4,
    "queue.upgrade_url": "https://example.com/upgrade",
    "server.public_url": "https://qo.example.com",
    "server.default_tier": "bootstrapper",
    "history.url": "postgresql://qo:password@localhost:5432/qo",
    "notify.webhook_url": "https://example.com/reminders",
    "notify.webhook_secret": "a long random text",
    "notify.email_from": "qo@example.com",
    "notify.smtp_url": "smtps://user:password@mail.example.com:465",
}
"""Values for the settings that are off by default: each is written behind a #, which a reader removes to use it."""


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
    """The text of a file from which `load_settings` reads the same settings."""
    return "\n".join([HEADER, *_sections(settings)]) + "\n"


def _sections(settings: Settings) -> Iterator[str]:
    for section in settings.__struct_fields__:
        value = getattr(settings, section)
        if isinstance(value, Mapping):
            for number, (name, entry) in enumerate(value.items()):
                yield from _table(f"{section}.{_key(name)}", entry, explain_as=section if number == 0 else None)
        else:
            yield from _table(section, value, explain_as=section)


def _table(title: str, section: msgspec.Struct, *, explain_as: str | None) -> Iterator[str]:
    """One section. `explain_as` is its name in `PURPOSES`, or None when a table above has explained the same keys."""
    allowed = _allowed(type(section))
    tables: list[str] = []
    yield from ("", f"[{title}]")
    for name in section.__struct_fields__:
        value = getattr(section, name)
        path = f"{explain_as}.{name}"
        comment = "# " + " ".join(filter(None, [PURPOSES.get(path), allowed.get(name)]))
        if isinstance(value, Mapping):
            tables += ["", f"[{title}.{name}]", comment]
            tables += [f"{_key(key)} = {_value(entry)}" for key, entry in value.items()]
        else:
            if explain_as is not None:
                yield comment
            yield f"# {name} = {_value(EXAMPLES.get(path, ''))}" if value is None else f"{name} = {_value(value)}"
    yield from tables


def _allowed(section: type[msgspec.Struct]) -> dict[str, str]:
    """The values that each described field accepts, as a sentence."""
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
    """The value as TOML, which writes text, numbers and lists as JSON does."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
