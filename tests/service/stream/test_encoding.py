"""The bytes of an event stream."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from qo.event import Event
from qo.service.stream.encoding import MOST_FRAMES, EventFrames, frame, retry_frame

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, *, at: datetime = AT) -> Event:
    return Event(id=number, at=at, kind="progress", subject="job", detail={})


def test_a_frame_has_its_name_its_id_and_one_line_of_json() -> None:
    assert frame("status", id=7, data={"a": 1, "at": AT}) == (
        b'event: status\nid: 7\ndata: {"a":1,"at":"2026-01-01T00:00:00Z"}\n\n'
    )


def test_no_text_can_end_its_line() -> None:
    text = "first\nsecond\r\nthird\rid: 9\n\nevent: forged\n\x0b\x0c\x1c\x85\u2028\u2029"

    name, number, data, *end = frame("status", id=7, data={"message": text}).split(b"\n")

    assert (name, number, end) == (b"event: status", b"id: 7", [b"", b""])
    assert b"\r" not in data
    assert msgspec.json.decode(data.removeprefix(b"data: ")) == {"message": text}


def test_the_wait_of_a_client_is_whole_milliseconds() -> None:
    assert retry_frame(1.2345) == b"retry: 1234\n\n"


def test_an_event_is_encoded_once() -> None:
    frames = EventFrames()

    first = frames.get(event(1), name="status", data={"a": 1})

    assert frames.get(event(1), name="status", data={"a": 1}) is first
    assert frames.made == 1


def test_an_event_of_another_time_is_another_event() -> None:
    """A store that was emptied counts from 1 again."""
    frames = EventFrames()
    frames.get(event(1), name="status", data="old")

    assert b"new" in frames.get(event(1, at=datetime(2027, 1, 1, tzinfo=UTC)), name="status", data="new")


def test_old_frames_are_dropped() -> None:
    frames = EventFrames()
    for number in range(MOST_FRAMES + 1):
        frames.get(event(number), name="status", data=None)

    frames.get(event(MOST_FRAMES), name="status", data=None)
    assert frames.made == MOST_FRAMES + 1
    frames.get(event(0), name="status", data=None)
    assert frames.made == MOST_FRAMES + 2
