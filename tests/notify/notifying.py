"""The notice that tests send, the secrets that must never be logged, and a sleep that does not wait."""

from __future__ import annotations

from datetime import UTC, datetime

from qo.notify.notice import Notice

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOTICE = Notice(
    job_id="j1",
    task="build",
    user="u1",
    message="Job j1 has waited 12 hours for somebody to confirm that it may go on – ça va?",
    at=NOW,
    detail={"confirm_before": "2026-01-02T15:04:05Z"},
)
NOT_DELIVERED = "The confirmation reminder for job 'j1' was not delivered by"

# Each has "s3cret" in it, which no log line and no error may have.
SECRET = "webhook-s3cret"
PASSWORD = "smtp-s3cret"
TOKEN_IN_PATH = "path-s3cret"
LOGIN = f"ann%40example.com:{PASSWORD}@"


class Pauses(list[float]):
    """Replaces `asyncio.sleep`: notes the seconds and returns at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def mail_settings(
    port: int,
    *,
    to: tuple[str, ...] = ("ann@example.com",),
    login: str = "",
    host: str = "127.0.0.1",
    scheme: str = "smtp",
) -> dict[str, object]:
    return {"smtp_url": f"{scheme}://{login}{host}:{port}", "email_from": "qo@example.com", "email_to": to}
