"""Every kind of event, with its detail."""

from __future__ import annotations

import re

import qo.event
from qo.job import State
from tools.site.reference.docstrings import class_attributes, module_attributes
from tools.site.reference.text import code, paragraphs, table

FIRST = """\
`queue.watch(job_id)` yields a `qo.Event` for each change of a job, and the streams of the HTTP service send the same.
`kind` says what happened, `subject` to which job, caller, group or user, and `detail` has the facts.

The first event of `watch`, and one after missed events, is the present state: its kind is the job's state, and its
detail has `present`, `status`, `position` and `message`."""


def described() -> dict[str, str]:
    """The docstring of each kind of event."""
    states = class_attributes(State)
    kinds = {state.value: states[state.name].text for state in State}
    constants = module_attributes(qo.event)
    for name, each in constants.items():
        value = getattr(qo.event, name)
        if isinstance(value, str):
            kinds[value] = each.text
    return kinds


def detail_of(text: str) -> set[str]:
    """The names in the detail of an event that is described so."""
    return set(re.findall(r"`(\w+)`", text.partition("Detail:")[2]))


def page() -> str:
    rows = [(code(kind), *(part.strip() for part in _split(text))) for kind, text in described().items()]
    return paragraphs(["# Events", FIRST, table(["kind", "what happened", "detail"], rows)])


def _split(text: str) -> tuple[str, str]:
    meaning, _, detail = text.partition("Detail:")
    return meaning, detail.strip().rstrip(".")
