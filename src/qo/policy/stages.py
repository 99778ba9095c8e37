"""The stages of a running job: the allowed next stage, and the stage at which a handler may return."""

from __future__ import annotations

from qo.errors import InvalidTransition


def check_stage(stages: tuple[str, ...], present: str | None, wanted: str) -> None:
    """Raises `InvalidTransition`, which names the allowed stage, unless `wanted` may follow the present stage."""
    allowed = stages_after(stages, present)
    if wanted not in allowed:
        raise InvalidTransition(
            "The job",
            _at(present) if stages else "running",
            repr(wanted),
            ", ".join(map(repr, allowed)) or "none, the task has no stages",
        )


def check_may_return(stages: tuple[str, ...], present: str | None) -> None:
    """Raises `InvalidTransition` when a handler returned before the last stage."""
    if stages and present != stages[-1]:
        allowed = ", ".join(map(repr, stages_after(stages, present)))
        raise InvalidTransition("The job", _at(present), "ready", f"{allowed}; a handler returns at {stages[-1]!r}")


def stages_after(stages: tuple[str, ...], present: str | None) -> tuple[str, ...]:
    """The stages that may come next: the first stage at the beginning of a run and after the last stage."""
    if not stages:
        return ()
    if present is None or present == stages[-1]:
        return (stages[0],)
    return (stages[stages.index(present) + 1],)


def _at(stage: str | None) -> str:
    return "before its first stage" if stage is None else f"at stage {stage!r}"
