"""`qo doctor`: what is wrong with settings, store, workers, clocks, keys and history, and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import click

from qo.cli.doctor_history import about_the_history
from qo.cli.finding import Finding
from qo.cli.options import Target, store_options
from qo.cli.output import show_json
from qo.cli.running import reading
from qo.cli.terminal import say
from qo.clock import system_ms
from qo.policy.words import counted
from qo.queue.queue import Queue
from qo.service.access.caller import Role
from qo.service.access.gate import LOCALHOST
from qo.service.access.keys import Key, Keys
from qo.service.access.site import is_ip_literal
from qo.settings import Settings
from qo.values import LinePage, Registration

FURTHEST_MS = 5_000
SLOW_SECONDS = 0.5
EXPIRES_SOON = timedelta(days=7)
LINE_READ = 1000
NOBODY = "qo-doctor"


@click.command()
@store_options
def doctor(target: Target) -> None:
    """Say what is wrong with the settings, the store, the workers, the clocks, the keys and the history, and what to
    do.

    Exits with 1 if anything is.
    """
    findings = reading(target, examine)
    if target.as_json:
        show_json(findings)
    elif not findings:
        say("Settings, store, workers, clocks and keys: nothing is wrong.")
    else:
        for each in findings:
            say(f"{each.about}: {each.wrong}\n  {each.do}")
    if findings:
        click.get_current_context().exit(1)


async def examine(queue: Queue) -> list[Finding]:
    store, now = queue.store, queue.system.now()
    began = time.monotonic()
    # A worker without tasks is none: nothing is registered, but the store says what time it has.
    said = await store.register(Registration(name=NOBODY, tasks=(), capacity=1))
    took = time.monotonic() - began
    ahead_ms = system_ms() - said.now_ms
    line, workers = await store.line(limit=LINE_READ), await store.workers()
    handled = {task for worker in workers for task in worker.tasks}
    keys = await Keys(store, system=queue.system).list()
    return [
        *_about_the_clock(ahead_ms),
        *_about_the_store(took),
        *_about_workers(line, handled),
        *_about_keys(keys, queue.settings, now),
        *_about_the_service(queue.settings, handled),
        *await about_the_history(queue),
    ]


def _about_the_clock(ahead_ms: int) -> Iterator[Finding]:
    if abs(ahead_ms) > FURTHEST_MS:
        where = "ahead of" if ahead_ms > 0 else "behind"
        yield Finding(
            "clock",
            f"This machine's clock is {abs(ahead_ms) / 1000:.0f} s {where} the store's.",
            "The store's clock decides, so jobs are right; set this one by NTP: times in words and in logs use it.",
        )


def _about_the_store(took: float) -> Iterator[Finding]:
    if took > SLOW_SECONDS:
        yield Finding(
            "store",
            f"The store took {took:.1f} s for a small answer.",
            "Look at its load, its disk and the way to it; every start of a job waits for such answers.",
        )


def _about_workers(line: LinePage, handled: Set[str]) -> Iterator[Finding]:
    queued = line.queued
    unhandled = sorted({job.task for job in line.jobs} - handled)
    if queued and not handled:
        yield Finding(
            "workers",
            f"No worker is running, and {counted(queued, 'job')} in line {'waits' if queued == 1 else 'wait'} for one.",
            "Start one: `qo worker module:worker`.",
        )
    elif unhandled:
        yield Finding(
            "workers",
            f"No worker that runs handles the task {', '.join(unhandled)}, of which jobs are in line.",
            "Start a worker with such a handler, or cancel those jobs.",
        )


def _about_keys(keys: Sequence[Key], settings: Settings, now: datetime) -> Iterator[Finding]:
    valid = [key for key in keys if key.is_valid(now)]
    if keys and not any(key.role is Role.ADMIN for key in valid):
        yield Finding(
            "keys",
            "No key of role admin is valid, so nobody can change anything over HTTP.",
            "Make one: `qo keys create --role admin`.",
        )
    for key in valid:
        if key.expires_at is not None and key.expires_at - now < EXPIRES_SOON:
            yield Finding(
                "keys",
                f"The key {key.id} ({key.role.value}) expires at {key.expires_at.isoformat()}.",
                "Make a new one with `qo keys create`, give it to its users, and revoke this one.",
            )
    if any(key.role is Role.USER for key in valid) and not settings.server.user_tasks:
        yield Finding(
            "keys",
            "There are keys of role user, but [server] user_tasks is empty, so they can submit nothing.",
            "Name the tasks that users may submit: user_tasks = [...] under [server].",
        )


def _about_the_service(settings: Settings, handled: Set[str]) -> Iterator[Finding]:
    server = settings.server
    if server.default_tier is not None and server.default_tier not in settings.tiers:
        yield Finding(
            "settings",
            f"server.default_tier is {server.default_tier!r}, which is no tier.",
            f"Use one of {', '.join(settings.tiers)}, or add it under [tiers.{server.default_tier}].",
        )
    if server.public_url is not None:
        host = urlsplit(server.public_url).hostname or ""
        if host not in (LOCALHOST, *server.hosts) and not is_ip_literal(host):
            yield Finding(
                "settings",
                f"server.public_url names {host}, but server.hosts does not, so requests under that name are refused.",
                f'Add it: hosts = ["{host}"] under [server].',
            )
    unknown = sorted(set(server.user_tasks) - handled)
    if handled and unknown:
        yield Finding(
            "settings",
            f"server.user_tasks names {', '.join(unknown)}, which no running worker handles.",
            "Start such a worker, or remove the name.",
        )
