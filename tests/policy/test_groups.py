"""Which groups a job belongs to, and how groups are summed."""

from __future__ import annotations

from typing import Any

import pytest

from qo.policy.groups import GLOBAL, KINDS, groups_of, is_always_counted, kind_of


def test_every_job_belongs_to_global_its_task_and_its_priority() -> None:
    assert groups_of(task="build", priority=50) == ("global", "build", "priority:50")


def test_what_is_given_adds_its_group_in_a_fixed_order() -> None:
    groups = groups_of(
        task="build",
        priority=20,
        user="u1",
        project="p1",
        tier="partner",
        parent="107",
        task_groups=("gpu", "ports"),
        own=("provider:ollama", "mine"),
    )

    assert groups == (
        "global",
        "build",
        "priority:20",
        "user:u1",
        "project:p1",
        "tier:partner",
        "parent:107",
        "gpu",
        "ports",
        "provider:ollama",
        "mine",
    )


@pytest.mark.parametrize("field", ["user", "project", "tier", "parent"])
def test_each_field_alone_adds_only_its_own_group(field: str) -> None:
    named: dict[str, Any] = {field: "x"}
    groups = groups_of(task="build", priority=50, **named)

    assert groups == ("global", "build", "priority:50", f"{field}:x")


def test_a_group_named_twice_counts_once_where_it_was_named_first() -> None:
    groups = groups_of(task="build", priority=50, task_groups=("gpu", "api"), own=("api", "build", "gpu", "own"))

    assert groups == ("global", "build", "priority:50", "gpu", "api", "own")


def test_a_job_may_belong_to_the_group_of_another_task() -> None:
    assert groups_of(task="build", priority=50, own=("deploy",))[-1] == "deploy"


def test_names_with_colons_stay_whole() -> None:
    assert "user:a:b" in groups_of(task="build", priority=50, user="a:b")


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("user:u1", "user"),
        ("project:p1", "project"),
        ("tier:partner", "tier"),
        ("priority:50", "priority"),
        ("parent:107", "parent"),
        ("provider:ollama", "provider"),
        ("user:a:b", "user"),
        ("global", "global"),
        ("providers", "providers"),
        ("build", "build"),
        ("user", "user"),
        ("gpu:a100", "gpu:a100"),
        ("users:u1", "users:u1"),
        (":u1", ":u1"),
    ],
)
def test_groups_of_a_reserved_kind_are_summed_and_others_stand_for_themselves(group: str, kind: str) -> None:
    assert kind_of(group) == kind


def test_a_million_users_are_one_kind() -> None:
    assert {kind_of(f"user:{number}") for number in range(1000)} == {"user"}


@pytest.mark.parametrize("group", [GLOBAL, "build", "priority:50"])
def test_what_every_job_belongs_to_is_counted_only_while_it_is_limited(group: str) -> None:
    assert not is_always_counted(group, "build")


@pytest.mark.parametrize(
    "group", [*(f"{kind}:x" for kind in KINDS if kind != "priority"), "providers", "deploy", "gpu", "priority"]
)
def test_holders_of_all_other_groups_are_always_counted(group: str) -> None:
    assert is_always_counted(group, "build")
