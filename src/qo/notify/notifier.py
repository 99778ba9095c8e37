"""Sends notices to people by webhook, e-mail, both or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Protocol

from qo.clock import system_now
from qo.notify.attempt import Attempt, DeliveryFailed, attempt_in_thread
from qo.notify.notice import Notice, one_line
from qo.settings import NotifySettings

log = logging.getLogger("qo.notify")

FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 30.0


class Channel(Protocol):
    name: str
    """Appears in the log, so it holds nothing secret."""

    def deliver(self, notice: Notice, attempt: Attempt) -> None:
        """Runs in a thread. Raises `DeliveryFailed` or `OSError`."""


class Notifier:
    """Sends notices to everything that `[notify]` configures."""

    def __init__(
        self,
        settings: NotifySettings,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], datetime] = system_now,
    ) -> None:
        """Raises `SettingsError` for a channel that is half configured, or has no usable address."""
        self.channels = _configured_channels(settings, clock)
        self._attempts = settings.attempts
        self._timeout_secs = settings.timeout_secs
        self._sleep = sleep

    async def send(self, notice: Notice) -> None:
        """Returns when every channel has delivered the notice or failed for good. Failures are logged, not raised.

        A receiver may get a notice twice, for instance when its answer was lost; both have the same `notice.id`.
        Cancelling cuts the connections.
        """
        await asyncio.gather(*(self._deliver(channel, notice) for channel in self.channels))

    async def _deliver(self, channel: Channel, notice: Notice) -> None:
        try:
            attempts = await self._deliver_in_some_attempt(channel, notice)
        except DeliveryFailed as failure:
            reason = failure.reason
        except Exception as error:
            # A bug, or a detail that is not JSON. Only its type is logged, because its text could hold a secret.
            reason = f"an unexpected {type(error).__name__} came up"
        else:
            log.info("%s was delivered by %s in attempt %d.", _named(notice), channel.name, attempts)
            return
        log.error("%s was not delivered by %s: %s.", _named(notice), channel.name, reason)

    async def _deliver_in_some_attempt(self, channel: Channel, notice: Notice) -> int:
        attempt, pause_secs = 1, FIRST_PAUSE_SECS
        while True:
            try:
                await attempt_in_thread(partial(channel.deliver, notice), timeout_secs=self._timeout_secs)
            except DeliveryFailed as failure:
                if not failure.again or attempt >= self._attempts:
                    raise
            else:
                return attempt
            await self._sleep(pause_secs)
            attempt, pause_secs = attempt + 1, min(pause_secs * 2, LONGEST_PAUSE_SECS)


def _configured_channels(settings: NotifySettings, clock: Callable[[], datetime]) -> list[Channel]:
    channels: list[Channel] = []
    # Imported here, because these modules bring the standard library's clients with them.
    if settings.webhook_url is not None or settings.webhook_secret is not None:
        from qo.notify.webhook import Webhook

        channels.append(Webhook(settings, clock=clock))
    if settings.email_to or settings.email_from is not None or settings.smtp_url is not None:
        from qo.notify.email import Email

        channels += Email.configured(settings, clock=clock)
    return channels


def _named(notice: Notice) -> str:
    return f"The {notice.kind.replace('_', ' ')} for job {one_line(notice.job_id)!r}"
