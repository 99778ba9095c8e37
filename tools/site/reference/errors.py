"""Every error, with its attributes, its HTTP status and the exit code of the command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import qo
import qo.errors
from qo.meanings import MEANINGS, Meaning
from tools.site.reference.docstrings import class_attributes
from tools.site.reference.text import code, heading, paragraphs, table


def errors() -> list[type[BaseException]]:
    found = [getattr(qo, name) for name in qo.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, BaseException)]


def page() -> str:
    tree = (inspect.getdoc(qo.errors) or "").split("\n\n")
    drawn = "\n".join(inspect.cleandoc("\n" + part) + "\n" for part in tree[1:3])
    return paragraphs(
        ["# Errors", tree[0], f"```text\n{drawn}```", *tree[3:], *(part for each in errors() for part in _entry(each))]
    )


def _entry(error: type[BaseException]) -> Iterator[str]:
    yield heading(2, code(f"qo.{error.__name__}"), f"qo.{error.__name__}")
    parents = [each.__name__ for each in error.__bases__]
    yield f"A kind of {' and '.join(code(each) for each in parents)}."
    yield inspect.cleandoc(error.__dict__.get("__doc__") or "")
    rows = [(code(each.name), code(each.type), each.text) for each in class_attributes(error).values()]
    yield table(["attribute", "type", "meaning"], rows)
    if issubclass(error, qo.QoError):
        meaning = _meaning(error)
        yield f"Over HTTP: {meaning.status}, “{meaning.title}”. Exit code of the command: {meaning.exit_code}."


def _meaning(error: type[qo.QoError]) -> Meaning:
    return next(meaning for kind, meaning in MEANINGS.items() if issubclass(error, kind))
