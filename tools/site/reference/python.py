"""The public names of Python: what `qo` and `qo.sync` export."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_overloads, is_typeddict

import msgspec

import qo
from tools.site.reference.docstrings import class_attributes
from tools.site.reference.text import code, heading, paragraphs, table

LINE_LENGTH = 88

OF_QUEUE = ("connect", "Queue", "Clock")
OF_WORKER = ("Worker", "Context", "ThreadContext")
OF_LIMITS = (
    "Limiter",
    "Block",
    "Lease",
    "LimiterMetrics",
    "Sample",
    "ConcurrencyManager",
    "Semaphore",
    "user_semaphore",
    "project_semaphore",
    "TIER_CONCURRENT_USER",
    "TIER_CONCURRENT_PROJECT",
)
MADE_BY_QO = frozenset({"Queue", "Context", "ThreadContext", "Block"})
"""Programs get these from a call, so how they are constructed is none of their business."""
FOR_QO_ITSELF = frozenset(
    {
        "Queue.admit",
        "Queue.admit_each",
        "Queue.check_loop",
        "Queue.configured_limits",
        "Queue.jobs_page",
        "Queue.store_here",
        "Queue.warn_of_ignored",
        "Context.present_stage",
        "Worker.numbers",
    }
)
"""Names without an underscore that the command and the service use, and that no program needs."""


def pages() -> dict[str, str]:
    """A page each for the queue, the worker and limits, one for values, one for all other names, one for `qo.sync`."""
    return {
        "queue.md": _page("The queue", "What `qo.connect` returns, what it can do, and a clock for tests.", OF_QUEUE),
        "worker.md": _page("The worker", "Runs jobs. A handler gets a context beside its data.", worker_names()),
        "limits.md": _page("Limits", "Slots for callers that are not jobs.", OF_LIMITS),
        "values.md": _page("Values", "What calls return, and what some of them take.", value_names()),
        "other.md": _page("Other names", "What is in none of the other pages.", other_names()),
        "sync.md": _sync_page(),
    }


def worker_names() -> tuple[str, ...]:
    """Those above, and what is defined beside them and is no value."""
    beside = [
        name
        for name in qo.__all__
        if getattr(getattr(qo, name), "__module__", "").startswith("qo.worker")
        and name not in OF_WORKER
        and not _is_value(getattr(qo, name))
    ]
    return (*OF_WORKER, *beside)


def value_names() -> tuple[str, ...]:
    placed = {*OF_QUEUE, *OF_LIMITS}
    found = [name for name in qo.__all__ if _is_value(getattr(qo, name)) and name not in placed]
    return ("Job", "New", *(name for name in found if name not in ("Job", "New")))


def other_names() -> tuple[str, ...]:
    placed = {*OF_QUEUE, *worker_names(), *OF_LIMITS, *value_names(), "sync"}
    return tuple(name for name in qo.__all__ if name not in placed and not _is_error(getattr(qo, name)))


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _is_value(thing: Any) -> bool:
    if not isinstance(thing, type) or _is_error(thing):
        return False
    return issubclass(thing, msgspec.Struct | enum.Enum | tuple) or is_typeddict(thing)


def _page(title: str, first: str, names: tuple[str, ...]) -> str:
    return paragraphs([f"# {title}", first, *(part for name in names for part in entry(qo, name))])


def _sync_page() -> str:
    parts = ["# qo.sync", *_docstring_parts(inspect.getdoc(qo.sync) or "")]
    for name in public_names(qo.sync):
        parts += entry(qo.sync, name)
    return paragraphs(parts)


def public_names(module: ModuleType) -> tuple[str, ...]:
    """Those of `__all__`, or what the module itself defines."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return tuple(named)
    return tuple(
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and getattr(thing, "__module__", None) == module.__name__
        and (inspect.isclass(thing) or inspect.isfunction(thing))
    )


def entry(module: ModuleType, name: str) -> Iterator[str]:
    """The heading of a name, and everything about it."""
    thing = getattr(module, name)
    full_name = f"{module.__name__}.{name}"
    yield heading(2, code(full_name), full_name)
    if _is_value(thing):
        yield from _docstring_parts(_own_docstring(thing))
        yield _fields(thing)
        yield from _methods(thing, full_name)
    elif inspect.isclass(thing):
        if name not in MADE_BY_QO and "asynchronous" not in inspect.signature(thing).parameters:
            yield _signature(f"class {full_name}", thing.__init__, is_method=True)
        yield from _docstring_parts(_own_docstring(thing))
        yield _attributes(thing)
        yield from _methods(thing, full_name)
    elif inspect.isroutine(thing):
        yield _signature(full_name, thing)
        yield from _docstring_parts(inspect.getdoc(thing) or "")
    else:
        shown = dict(thing) if hasattr(thing, "items") else thing
        yield f"```python\n{full_name} = {shown!r}\n```"


def _own_docstring(kind: type) -> str:
    """Not that of a class of Python or msgspec which it extends."""
    return inspect.cleandoc(kind.__dict__.get("__doc__") or "")


def _docstring_parts(text: str) -> Iterator[str]:
    """The paragraphs of a docstring; indented ones are code."""
    for part in text.split("\n\n"):
        if part.startswith("    "):
            yield f"```python\n{inspect.cleandoc(part)}\n```"
        else:
            yield part.strip()


def _fields(kind: Any) -> str:
    described = class_attributes(kind)
    if issubclass(kind, enum.Enum):
        rows = [(code(each.name), code(repr(each.value)), described[each.name].text) for each in kind]
        return table(["name", "value", "meaning"], rows)
    if issubclass(kind, msgspec.Struct):
        fields = [each for each in msgspec.structs.fields(kind) if not each.name.startswith("_")]
        return table(
            ["field", "type", "default", "meaning"],
            [
                (code(each.name), code(described[each.name].type), _default(each), described[each.name].text)
                for each in fields
            ],
        )
    return table(
        ["field", "type", "meaning"],
        [(code(each.name), code(each.type), each.text) for each in described.values()],
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return code(repr(field.default))
    return "made anew" if field.default_factory is not msgspec.NODEFAULT else ""


def _attributes(kind: type) -> str:
    rows = [
        (code(each.name), code(each.type), each.text)
        for each in class_attributes(kind).values()
        if f"{kind.__name__}.{each.name}" not in FOR_QO_ITSELF and each.text
    ]
    properties = [
        (code(name), code(_returned(member.fget)), inspect.getdoc(member) or "")
        for name, member in _members(kind)
        if isinstance(member, property)
    ]
    return table(["attribute", "type", "meaning"], [*rows, *properties])


def _returned(getter: Any) -> str:
    return str(inspect.signature(getter).return_annotation)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public members that qo defines, in the order of its source, those of the class itself first."""
    seen = set()
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] != "qo":
            continue
        for name, member in vars(each).items():
            is_known = name in seen or f"{kind.__name__}.{name}" in FOR_QO_ITSELF
            if not name.startswith("_") and not is_known:
                seen.add(name)
                yield name, member


def methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in _members(kind):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = getattr(function, "__wrapped__", function)  # a call of qo.sync wraps that of qo
        if inspect.isfunction(function):
            yield name, function


def _methods(kind: type, full_name: str) -> Iterator[str]:
    for name, function in methods(kind):
        yield heading(3, code(f"{kind.__name__}.{name}"), f"{full_name}.{name}")
        shown = _signature(name, function, is_method=True)
        yield shown.replace("await ", "") if full_name.startswith("qo.sync.") else shown
        yield from _docstring_parts(inspect.getdoc(function) or "")


def _signature(name: str, function: Callable[..., Any], *, is_method: bool = False) -> str:
    """The signature in the words of the source; each overload where there are several."""
    shown = [_shown(name, each, is_method=is_method) for each in get_overloads(function) or [function]]
    return "```python\n" + "\n".join(shown) + "\n```"


def _shown(name: str, function: Callable[..., Any], *, is_method: bool) -> str:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if is_method and not inspect.ismethod(function) else 0 :]
    awaited = "await " if inspect.iscoroutinefunction(function) else ""
    returned = (
        "" if signature.return_annotation in (inspect.Signature.empty, "None", None) else signature.return_annotation
    )
    end = f" -> {_annotation(returned)}" if returned else ""
    texts = [_parameter(each) for each in parameters]
    keyword_only = [number for number, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY]
    if keyword_only and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        texts.insert(keyword_only[0], "*")
    line = f"{awaited}{name}({', '.join(texts)}){end}"
    if len(line) <= LINE_LENGTH:
        return line
    inner = "".join(f"    {text},\n" for text in texts)
    return f"{awaited}{name}(\n{inner}){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    kinds: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = kinds.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}" if ":" in text else f"={parameter.default!r}"
    return text


def _annotation(annotation: Any) -> str:
    return str(annotation) if isinstance(annotation, str) else inspect.formatannotation(annotation)
