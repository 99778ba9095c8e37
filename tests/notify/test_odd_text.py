"""Whatever a job is called, it stays where it belongs: no header and no log line of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from email import message_from_bytes, policy

from hypothesis import example, given
from hypothesis import strategies as st

from qo.notify.email import compose
from qo.notify.notice import Notice
from qo.notify.notifier import Notifier
from tests.notify.local_servers import Receiver
from tests.notify.notifying import NOW

ODD = "a\r\nX-Evil: 1\n\n\x00\x85\u2028\u202e é 日本 🙂"
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
HEADERS_OF_THE_BODY = ["Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


async def test_no_header_of_a_call_holds_what_a_user_named(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    plain = Notice(job_id="j1", task="t", user="u", message="m", at=NOW)
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW, detail={ODD: ODD})
    one = notifier(webhook_url=receiver.url)

    await one.send(plain)
    await one.send(odd)

    changing = {"Content-Length", "webhook-id"}
    first, second = ({**headers, **dict.fromkeys(changing)} for headers in receiver.headers)
    assert first == second
    assert json.loads(receiver.bodies[1])["job_id"] == ODD


async def test_a_log_line_about_an_odd_job_is_one_line(
    closed_port: int, notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW)

    await notifier(webhook_url=f"http://127.0.0.1:{closed_port}").send(odd)

    assert len(errors()[0].splitlines()) == 1


@given(job_id=text, task=text, detail=st.dictionaries(text, text, max_size=2))
@example(job_id=ODD, task=ODD, detail={ODD: ODD})
@example(job_id="=?utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id="==??utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id=" " * 200, task="", detail={})
@example(job_id="é " * 100, task=".\r\n.", detail={"Subject": "x"})
def test_whatever_a_job_is_called_its_e_mail_has_the_same_headers(
    job_id: str, task: str, detail: dict[str, str]
) -> None:
    notice = Notice(job_id=job_id, task=task, user=None, message="m", at=NOW, detail=detail)

    sent = compose(notice, sender="qo@example.com", recipient="ann@example.com", date=NOW).as_bytes()

    head, _, _ = sent.partition(b"\r\n\r\n")
    received = message_from_bytes(sent, policy=policy.default)
    assert sent.isascii()
    assert max(map(len, sent.split(b"\r\n"))) < 998
    assert [line for line in head.split(b"\r\n") if not line.strip()] == []
    assert received.keys() == HEADERS + HEADERS_OF_THE_BODY
    assert received["Subject"].strip().startswith("qo: job ")
    assert received["Subject"].endswith("waits for your confirmation")
    assert len(received.get_content().splitlines()) == 5 + len(detail)
