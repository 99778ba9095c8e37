"""Hides the values in data that have the name of a secret."""

from __future__ import annotations

import re
from typing import Any

from qo.policy.redact.redact import is_secret_name
from qo.policy.redact.rules import SECRET

ANYWHERE = re.compile("password|secret|token|key|authorization|cookie", re.IGNORECASE)
"""Wider than the rule for texts, which must leave `max_token_count` alone: here a value too many may be hidden."""


def redact_by_name(value: Any) -> Any:
    """The same JSON value, in which each value under such a name, also as a part of the name, is hidden."""
    if isinstance(value, dict):
        return {
            name: SECRET
            if each is not None and (ANYWHERE.search(name) or is_secret_name(name))
            else redact_by_name(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [redact_by_name(each) for each in value]
    return value
