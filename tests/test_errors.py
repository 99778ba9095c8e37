"""The tree at the top of `qo.errors` is the real one."""

from __future__ import annotations

import inspect
import re

from qo import errors

LINE = re.compile(r"^ {4}((?:[│ ]   |[├└]── )*)(\w+) {2,}(.+)$", re.MULTILINE)


def drawn_bases() -> dict[str, set[str]]:
    """By class, the class above it in the drawing and those that its text names as `(also a …)`."""
    path: list[str] = []
    bases: dict[str, set[str]] = {}
    for indent, name, text in LINE.findall(errors.__doc__ or ""):
        del path[len(indent) // 4 :]
        bases[name] = {path[-1] if path else "Exception", *re.findall(r"\(also an? (\w+)\)", text)}
        path.append(name)
    return bases


def test_the_tree_that_is_drawn_is_the_tree_of_classes() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    ]

    real = {each.__name__: {base.__name__ for base in each.__bases__} for each in classes}

    assert drawn_bases() == real
