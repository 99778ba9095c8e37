"""The operations of the API, by what they are about."""

from qo.service.operations import Operation
from qo.service.routes import (
    actions,
    counts,
    forecasts,
    history,
    jobs,
    limits,
    line,
    page,
    people,
    session,
    streams,
    watch,
    watching,
    widget,
)

OPERATIONS: tuple[Operation, ...] = (
    *actions.OPERATIONS,
    *jobs.OPERATIONS,
    *history.OPERATIONS,
    *counts.OPERATIONS,
    *line.OPERATIONS,
    *limits.OPERATIONS,
    *forecasts.OPERATIONS,
    *people.OPERATIONS,
    *watching.OPERATIONS,
    *streams.OPERATIONS,
    *session.OPERATIONS,
    *watch.OPERATIONS,
    *page.OPERATIONS,
    *widget.OPERATIONS,
)
