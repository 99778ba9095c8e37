"""Tell people what they wait for, by webhook, e-mail, both or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from qo.runtime.notify.attempt import Attempt, DeliveryFailed, attempt_in_thread
from qo.runtime.notify.notice import Notice, one_line
from qo.runtime.notify.signing import signature, verify
from qo.settings import NotifySettings
from qo.spans import system_now

__all__ = ["Notice", "Notifier", "signature", "verify"]

log = logging.getLogger("qo.notify")

FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 30.0


class Channel(Protocol):
    name: str
    """for the log: nothing secret is in it"""

    def prepare(self, notice: Notice) -> Callable[[Attempt], None]:
        """What one attempt runs in a thread. It raises `DeliveryFailed`, or `TimeoutError` when given up."""


class Notifier:
    """Sends notices to everything that `[notify]` configures."""

    def __init__(
        self,
        settings: NotifySettings,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], datetime] = system_now,
    ) -> None:
        """Raises `SettingsError` for a channel that is half configured, or to which no address can lead."""
        self._channels = _configured_channels(settings, clock)
        self._attempts = settings.attempts
        self._timeout_secs = settings.timeout_secs
        self._sleep = sleep

    async def send(self, notice: Notice) -> None:
        """Returns when every channel has delivered the notice or failed for good, which is logged, not raised.

        A receiver may get a notice twice, for instance when its answer was lost; `notice.id` tells.
        Cancelling cuts the connections.
        """
        await asyncio.gather(*(self._deliver(channel, notice) for channel in self._channels))

    async def _deliver(self, channel: Channel, notice: Notice) -> None:
        try:
            attempts = await self._deliver_in_some_attempt(channel, notice)
        except DeliveryFailed as failure:
            reason = failure.reason
        except Exception as error:
            # A fault of ours, or a detail that is not JSON. Only its type, because its text could hold anything.
            reason = f"an unexpected {type(error).__name__} came up"
        else:
            log.info("%s was delivered by %s in attempt %d.", _named(notice), channel.name, attempts)
            return
        log.error("%s was not delivered by %s: %s.", _named(notice), channel.name, reason)

    async def _deliver_in_some_attempt(self, channel: Channel, notice: Notice) -> int:
        deliver = channel.prepare(notice)
        attempt, pause_secs = 1, FIRST_PAUSE_SECS
        while True:
            try:
                await attempt_in_thread(deliver, timeout_secs=self._timeout_secs)
            except DeliveryFailed as failure:
                if not failure.again or attempt >= self._attempts:
                    raise
            else:
                return attempt
            await self._sleep(pause_secs)
            attempt, pause_secs = attempt + 1, min(pause_secs * 2, LONGEST_PAUSE_SECS)


def _configured_channels(settings: NotifySettings, clock: Callable[[], datetime]) -> list[Channel]:
    channels: list[Channel] = []
    # The modules bring the standard library's clients with them, so only who uses a channel imports it.
    if settings.webhook_url is not None or settings.webhook_secret is not None:
        from qo.runtime.notify.webhook import Webhook

        channels.append(Webhook(settings, clock=clock))
    if settings.email_to or settings.email_from is not None or settings.smtp_url is not None:
        from qo.runtime.notify.email import Email

        channels.append(Email(settings, clock=clock))
    return channels


def _named(notice: Notice) -> str:
    return f"The {notice.kind.replace('_', ' ')} for job {one_line(notice.job_id)!r}"
