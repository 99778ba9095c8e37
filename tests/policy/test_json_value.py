"""What may be a payload, a result or a checkpoint, and what JSON would silently turn into something else."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import InvalidValue
from qo.policy.json_value import encode_json


class Pair(NamedTuple):
    a: int
    b: int


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    ADA = "ada"


class Level(enum.IntEnum):
    LOW = 1


class Order(msgspec.Struct):
    when: datetime
    tags: set[str]
    raw: bytes
    price: Any = None


@dataclasses.dataclass
class Item:
    id: UUID
    counts: dict[int, float]


@attrs.define
class Part:
    raw: bytes


class Model(pydantic.BaseModel):
    price: Decimal
    size: float = pydantic.Field(default=1.0, alias="SIZE")


ID = UUID(int=7)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"files": ["a", "b", b"c"]},
            "data.files[2] is of type bytes, which JSON would turn into another one; ",
        ),
        (b"x", "data is of type bytes, which JSON would turn into another one; give text, such as base64."),
        ({"a": bytearray(b"x")}, "data.a is of type bytearray,"),
        ({"a": memoryview(b"x")}, "data.a is of type memoryview,"),
        ({"a": {"b": {1}}}, "data.a.b is of type set, which JSON would turn into another one; give a list."),
        ([frozenset()], "data[0] is of type frozenset,"),
        ({"a": Decimal(1)}, "data.a is of type Decimal, which JSON would turn into another one; give text or a float."),
        ({"a": NOON}, "data.a is of type datetime, which JSON would turn into another one; give text, such as its iso"),
        ({"a": date(2030, 1, 1)}, "data.a is of type date,"),
        ({"a": NOON.time()}, "data.a is of type time,"),
        ({"a": timedelta(1)}, "data.a is of type timedelta, which JSON would turn into another one; give its total_s"),
        ({"a": ID}, "data.a is of type UUID, which JSON would turn into another one; give text, such as its str()."),
        ({"a": Colour.RED}, "data.a is of type Colour, which JSON would turn into another one; give its value."),
        ({"a": {1: 2}}, "data.a has the key 1, and JSON has text keys only; use '1'."),
        ({"a": {1.5: 2}}, "data.a has the key 1.5, and JSON has text keys only; use '1.5'."),
        ({b"k": 2}, "data has the key b'k', and JSON has text keys only;"),
        ({None: 2}, "data has the key None, and JSON has text keys only;"),
        ({True: 2}, "data has the key True, and JSON has text keys only;"),
        ({ID: 2}, "data has the key UUID("),
        ({"x y": [math.nan]}, "data['x y'][0] is nan, for which JSON has no number; use null or leave it out."),
        ((1, (2, math.inf)), "data[1][1] is inf, for which JSON has no number;"),
        ({"a": object()}, "data.a is of type object, which JSON does not have; give values that JSON can hold."),
        ({"a": 1j}, "data.a is of type complex, which JSON does not have;"),
        ({"a": Order}, "data.a is of type StructMeta, which JSON does not have;"),
        ({"a": Model}, "data.a is of type ModelMetaclass, which JSON does not have;"),
        ({"a": "\ud800"}, "data.a has half a surrogate pair, which is no Unicode;"),
        (Order(NOON, set(), b"", math.nan), "data.price is nan, for which JSON has no number;"),
        ({"o": [Order(NOON, set(), b"", math.inf)]}, "data.o[0].price is inf, for which JSON has no number;"),
        (Order(NOON, set(), b"", object()), "data is not JSON (JSON does not have the type object);"),
        (Item(ID, {1: math.nan}), "data.counts['1'] is nan, for which JSON has no number;"),
        (Model(price=Decimal(1), SIZE=math.nan), "data.SIZE is nan, for which JSON has no number;"),
        (msgspec.Raw(b"no json"), "data is of type Raw, which JSON does not have;"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_what_json_would_change_is_refused_by_its_path(value: Any, sentence: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        encode_json("data", value)

    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(".")


def test_what_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidValue, match=r"^data is nested too deeply or holds itself; "):
        encode_json("data", loop)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (None, b"null"),
        ({"a": (1, 2)}, b'{"a":[1,2]}'),
        (Pair(1, 2), b"[1,2]"),
        (OrderedDict(b=1, a=2), b'{"b":1,"a":2}'),
        ([Name.ADA, Level.LOW, True, 2**70, -0.0], b'["ada",1,true,1180591620717411303424,-0.0]'),
        ({Name.ADA: None}, b'{"ada":null}'),
    ],
)
def test_what_comes_back_as_the_same_value_is_taken(value: Any, json: bytes) -> None:
    assert encode_json("data", value) == json


def test_typed_models_are_written_so_that_their_type_reads_them_again() -> None:
    order, item, part = Order(NOON, {"a"}, b"\xff"), Item(ID, {7: 0.5}), Part(b"x")
    model = Model(price=Decimal("1.10"), SIZE=2.5)

    assert msgspec.json.decode(encode_json("data", order), type=Order) == order
    assert msgspec.json.decode(encode_json("data", item), type=Item) == item
    assert msgspec.json.decode(encode_json("data", part), type=Part) == part
    assert Model.model_validate_json(encode_json("data", model)) == model
    assert Model.model_validate(msgspec.json.decode(encode_json("data", {"in": [model]}))["in"][0]) == model


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_every_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert msgspec.json.decode(encode_json("data", value)) == value
