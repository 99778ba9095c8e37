"""How operations call their functions, and what a refusal means."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from qo.clock import ReadClock
from qo.errors import JobNotFound, ParentNotFound, QoError
from qo.ids import new_mark
from qo.policy.audit import changed_since
from qo.policy.lifecycle import Change, refusal
from qo.store.check import CHECKS
from qo.store.redis.rows import Reply
from qo.store.redis.server.client import Client
from qo.store.redis.server.functions import function
from qo.values import Bounds

_encode = msgspec.msgpack.Encoder().encode
FIRST_BLOB = 3
"""The place of the first payload among the arguments of a function."""

P = ParamSpec("P")
T = TypeVar("T")
Given = Mapping[str, Any]
"""An operation's arguments by the names of its parameters."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """What goes to a function. `once`: a call that is sent again gets its first answer, because doing it a second time
    would not be the same."""

    arguments: Given
    blobs: Sequence[bytes] = ()
    once: bool = False


class Calling:
    def __init__(self, client: Client, bounds: Bounds) -> None:
        self.client = client
        self.bounds = bounds
        # The functions know the usual ones: to send and read them is 2 % of a submit.
        self._other_bounds = {} if bounds == Bounds() else {"bounds": bounds}
        self.clock: ReadClock | None = None

    async def _run(
        self,
        name: str,
        arguments: Given,
        *,
        blobs: Sequence[bytes] = (),
        once: bool = False,
    ) -> Reply:
        sent = {**arguments, **self._other_bounds}
        if self.clock is not None:
            sent["now"] = self.clock()
        operation = new_mark() if once else ""
        return Reply(await self.client.run(function(name), [_encode(sent), operation, *blobs]))

    async def _command(self, command: str, key: str, *arguments: str | int) -> Any:
        """A plain command on one of this namespace's keys."""
        return await self.client.command(command, f"{self.client.prefix}{key}", *arguments)


def derived(
    contract: Callable[Concatenate[Any, P], Awaitable[T]],
    answer: Callable[[Reply, Given], T],
    request: Callable[[Given], Sent],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method that checks its input, calls the function of its name and returns what the reply stands for."""
    name = contract.__name__
    check = CHECKS.get(name, _accept)
    parameters = [one for one in inspect.signature(contract).parameters.values() if one.name != "self"]
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    @wraps(contract)
    async def method(self: Calling, /, *args: P.args, **kwargs: P.kwargs) -> T:
        check(*args, **kwargs)
        given: Given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        sent = request(given)
        return answer(await self._run(name, sent.arguments, blobs=sent.blobs, once=sent.once), given)

    return method


def writing(
    contract: Callable[Concatenate[Any, P], Awaitable[T]],
    answer: Callable[[Reply, Given], T],
    request: Callable[[Given], Sent] = lambda given: Sent(given, once=True),
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    return derived(contract, answer, request)


def reading(
    contract: Callable[Concatenate[Any, P], Awaitable[T]],
    answer: Callable[[Reply, Given], T],
    request: Callable[[Given], Sent] = Sent,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    return derived(contract, answer, request)


def _accept(*args: object, **kwargs: object) -> None:
    """The check of an operation that takes any input."""


def refused(reply: Reply) -> str | None:
    reason: str | None = reply.answer.get("refused")
    return reason


def check_refusal(reply: Reply, *, wanted: Change | None = None, parent: str | None = None) -> None:
    """Raise what a refusal stands for; `wanted` is the change that was refused."""
    detail: Mapping[str, Any] = reply.answer.get("detail") or {}
    match refused(reply):
        case None:
            return
        case "no_job":
            raise JobNotFound(detail["id"])
        case "no_parent":
            assert parent is not None
            raise ParentNotFound(parent)
        case "wrong_state":
            assert wanted is not None
            raise refusal(detail["id"], detail["state"], wanted)
        case "changed_since":
            raise changed_since(detail["subject"], detail["entry"])
        case reason:
            raise QoError(f"The store refused: {reason} {dict(detail)}.")
