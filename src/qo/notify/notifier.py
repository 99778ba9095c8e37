"""Sends notices to people by webhook, e-mail, both or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from qo.clock import system_now
from qo.notify.attempt import Attempt, DeliveryFailed, attempt_in_thread
from qo.notify.notice import Notice, one_line
from qo.settings import NotifySettings

if TYPE_CHECKING:
    from qo.notify.email import EmailSettings

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
        self._webhooks, self._email = _configured_webhooks(settings, clock), _configured_email(settings, clock)
        self._has_warned = False
        self._attempts = settings.attempts
        self._timeout_secs = settings.timeout_secs
        self._sleep = sleep

    def channels(self, contact: str | None = None) -> list[Channel]:
        """Every webhook, and the e-mails to this contact, or to the configured recipients where there is none."""
        if self._email is None:
            if contact is not None and not self._has_warned:
                self._has_warned = True
                log.warning("a job has a contact, but no e-mail can be sent; set notify.smtp_url and notify.email_from")
            return [*self._webhooks]
        emails = self._email.to_recipients if contact is None else [self._email.to_contact(contact)]
        return [*self._webhooks, *emails]

    async def send(self, notice: Notice, *, contact: str | None = None) -> None:
        """Returns when every channel has delivered the notice or failed for good. Failures are logged, not raised.

        A receiver may get a notice twice, for instance when its answer was lost; both have the same `notice.id`.
        Cancelling cuts the connections.
        """
        await asyncio.gather(*(self._deliver(channel, notice) for channel in self.channels(contact)))

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


# Imported when configured, because these modules bring the standard library's clients with them.


def _configured_webhooks(settings: NotifySettings, clock: Callable[[], datetime]) -> list[Channel]:
    if settings.webhook_url is None and settings.webhook_secret is None:
        return []
    from qo.notify.webhook import Webhook

    return [Webhook(settings, clock=clock)]


def _configured_email(settings: NotifySettings, clock: Callable[[], datetime]) -> EmailSettings | None:
    if not settings.email_to and settings.email_from is None and settings.smtp_url is None:
        return None
    from qo.notify.email import EmailSettings

    return EmailSettings(settings, clock=clock)


def _named(notice: Notice) -> str:
    return f"The {notice.kind.replace('_', ' ')} for job {one_line(notice.job_id)!r}"
