"""Docstrings of attributes, which Python does not keep: they are read from the source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Attribute(NamedTuple):
    name: str
    type: str
    text: str


def class_attributes(kind: type) -> dict[str, Attribute]:
    """The attributes in the body of a class and of the classes that it extends, and those that `__init__` makes."""
    found: dict[str, Attribute] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.partition(".")[0] != "qo":
            continue
        body = _class_body(each)
        for attribute in _in(body):
            found[attribute.name] = attribute
        for function in body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                types = {arg.arg: arg.annotation for arg in _arguments(function)}
                for attribute in _in(function.body, types):
                    found.setdefault(attribute.name, attribute)
    return {name: each for name, each in found.items() if not name.startswith("_")}


def module_attributes(module: Any) -> dict[str, Attribute]:
    """The documented names at the top of a module."""
    return {each.name: each for each in _in(ast.parse(inspect.getsource(module)).body)}


def _class_body(kind: type) -> Sequence[ast.stmt]:
    parsed = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(parsed, ast.ClassDef)
    return parsed.body


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _in(body: Sequence[ast.stmt], types: dict[str, ast.expr | None] | None = None) -> Iterator[Attribute]:
    for statement, following in zip(body, [*body[1:], None], strict=True):
        target = _target(statement, in_init=types is not None)
        if target is None:
            continue
        annotation: ast.expr | None = statement.annotation if isinstance(statement, ast.AnnAssign) else None
        value = getattr(statement, "value", None)
        if annotation is None and types and isinstance(value, ast.Name):
            annotation = types.get(value.id)
        kind = "" if annotation is None else ast.unparse(annotation)
        yield Attribute(target, kind, _docstring(following))


def _target(statement: ast.stmt, *, in_init: bool) -> str | None:
    """The attribute that a statement makes. Names in `__init__` are its own variables."""
    if isinstance(statement, ast.AnnAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    if not in_init:
        return target.id if isinstance(target, ast.Name) else None
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        return target.attr
    return None


def _docstring(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        text = statement.value.value
        return inspect.cleandoc(text) if isinstance(text, str) else ""
    return ""
