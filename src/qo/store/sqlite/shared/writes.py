"""Writes of a step that wait for more of their kind.

One statement run for fifty jobs in a row takes a third of the time that it takes between other statements, so
what is written job by job is gathered here. Only one statement a table waits at a time, and everything is written
before anybody looks through `db`: what happens to a row happens in the order in which it was asked for, and no
read can miss it.
"""

from __future__ import annotations

from typing import Any

import apsw


class Writes:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        """the file without what still waits: for looking at what cannot be waiting, because a batch whose jobs have
        users and groups of their own would otherwise be written one by one"""
        self._waiting: dict[str, tuple[str, list[tuple[Any, ...]]]] = {}

    @property
    def db(self) -> apsw.Connection:
        """The file as the step has left it."""
        if self._waiting:
            self.flush()
        return self.connection

    def add(self, table: str, statement: str, bindings: tuple[Any, ...]) -> None:
        """Run this statement, which changes only this table and looks at no other, before anybody looks."""
        waiting = self._waiting.get(table)
        if waiting is not None and waiting[0] == statement:
            waiting[1].append(bindings)
            return
        if waiting is not None:
            self.connection.executemany(*waiting)
        self._waiting[table] = statement, [bindings]

    def flush(self) -> None:
        for statement, rows in self._waiting.values():
            self.connection.executemany(statement, rows)
        self._waiting.clear()
