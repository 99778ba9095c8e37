"""Turns: a job or caller that needs busy groups has free slots of them kept for it, so that it does not starve."""

from __future__ import annotations

TURN_AFTER = 8
"""How often a job or caller is passed before it takes a turn."""
TURNS = 16
"""How many jobs and callers have a turn at the same time."""
TURN_GROUPS = 64
"""How many different groups those with a turn need in all."""
