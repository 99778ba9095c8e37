"""Whatever a job is called, it stays where it belongs: no header and no log line of its own."""

from __future__ import annotations

import json
from email import message_from_bytes, policy

from hypothesis import example, given
from hypothesis import strategies as st
from notify_fixtures import (  # noqa: F401 - asked for by name
    closed_port_fixture,
    errors_fixture,
    notifier_fixture,
    pauses_fixture,
    receiver_fixture,
)
from notifying import NOW

from qo.runtime.notifier import Notice
from qo.runtime.notify.email import compose

ODD = "a\r\nX-Evil: 1\n\n\x00\x85\u2028\u202e é 日本 🙂"
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
HEADERS_OF_THE_BODY = ["Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


async def test_no_header_of_a_call_holds_what_a_user_named(receiver, notifier, errors):
    plain = Notice(job_id="j1", task="t", user="u", message="m", at=NOW)
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW, detail={ODD: ODD})
    one = notifier(webhook_url=receiver.url)

    await one.send(plain)
    await one.send(odd)

    changing = {"Content-Length", "Qo-Notice-Id"}
    first, second = ({**headers, **dict.fromkeys(changing)} for headers in receiver.headers)
    assert first == second
    assert json.loads(receiver.bodies[1])["job_id"] == ODD


async def test_a_log_line_about_an_odd_job_is_one_line(closed_port, notifier, errors):
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW)

    await notifier(webhook_url=f"http://127.0.0.1:{closed_port}").send(odd)

    assert len(errors()[0].splitlines()) == 1


@given(job_id=text, task=text, detail=st.dictionaries(text, text, max_size=2))
@example(job_id=ODD, task=ODD, detail={ODD: ODD})
@example(job_id="=?utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id="==??utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id=" " * 200, task="", detail={})
@example(job_id="é " * 100, task=".\r\n.", detail={"Subject": "x"})
def test_whatever_a_job_is_called_its_e_mail_has_the_same_headers(job_id, task, detail):
    notice = Notice(job_id=job_id, task=task, user=None, message="m", at=NOW, detail=detail)

    sent = compose(notice, sender="qo@example.com", recipients=("ann@example.com",), date=NOW).as_bytes()

    head, _, _ = sent.partition(b"\r\n\r\n")
    received = message_from_bytes(sent, policy=policy.default)
    assert sent.isascii()
    assert max(map(len, sent.split(b"\r\n"))) < 998
    assert [line for line in head.split(b"\r\n") if not line.strip()] == []
    assert received.keys() == HEADERS + HEADERS_OF_THE_BODY
    assert received["Subject"].strip().startswith("qo: job ")
    assert received["Subject"].endswith("waits for your confirmation")
    assert len(received.get_content().splitlines()) == 5 + len(detail)
