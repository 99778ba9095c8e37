"""Names of figures."""

from __future__ import annotations

import pytest

from qo.policy.figures import WAIT_BUCKETS_SECONDS, figures_of, own_group_of, wait_bucket
from qo.policy.groups import KINDS


@pytest.mark.parametrize("group", ["gpu", "customer:1", "a:4", "global", "providers", "acquired", "rejected:a"])
def test_every_figure_of_a_group_is_known_as_its_own(group: str) -> None:
    figures = figures_of(group)

    assert len(set(figures)) == len(WAIT_BUCKETS_SECONDS) + 1
    assert {own_group_of(figure) for figure in figures} == {group}


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_that_is_summed_under_a_kind_belongs_to_no_group(kind: str) -> None:
    assert figures_of(f"{kind}:u1") == figures_of(kind) == []
    assert own_group_of(f"rejected:{kind}") is own_group_of(f"acquired:{kind}:4") is None


@pytest.mark.parametrize("figure", ["submitted", "wait:50", "ended:succeeded"])
def test_figures_of_jobs_are_no_groups(figure: str) -> None:
    assert own_group_of(figure) is None


@pytest.mark.parametrize("waited_ms", [-1, 0, 1, 1000, 1001, 65_535_999, 65_536_001, 10**12])
def test_every_wait_is_in_a_bucket_that_is_listed(waited_ms: int) -> None:
    assert wait_bucket(waited_ms) in WAIT_BUCKETS_SECONDS
