"""What a limiter accepts, from code and from the environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qo

TOO_BIG = 2**31


def mistyped(value: object) -> Any:
    """A value of a type that a type checker refuses where it stands."""
    return value


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: qo.Limiter({"ollama": -1}), "limit of provider 'ollama' is -1; use a whole number from 0 to"),
        (lambda: qo.Limiter({"ollama": mistyped(1.0)}), "limit of provider 'ollama' is 1.0; use a whole number"),
        (lambda: qo.Limiter({"ollama": True}), "limit of provider 'ollama' is True; use a whole number"),
        (lambda: qo.Limiter({"ollama": mistyped("4")}), "limit of provider 'ollama' is '4'; use a whole number"),
        (lambda: qo.Limiter({"ollama": mistyped(None)}), "limit of provider 'ollama' is None; use a whole number"),
        (lambda: qo.Limiter({"ollama": TOO_BIG}), f"limit of provider 'ollama' is {TOO_BIG}; use a whole number"),
        (lambda: qo.Limiter({"": 1}), "provider is empty"),
        (lambda: qo.Limiter({"provider:": 1}), "provider is empty"),
        (lambda: qo.Limiter({mistyped(7): 1}), "provider is 7; use text"),
        (lambda: qo.Limiter({"x" * 201: 1}), "which has 201 characters"),
        (lambda: qo.Limiter({"a\nb": 1}), "control character"),
        (lambda: qo.Limiter({"global": 1}), "provider is 'global', which is reserved"),
        (lambda: qo.Limiter({"total": 1}), "provider is 'total', which is reserved"),
        (lambda: qo.Limiter({"providers": 1}), "provider is 'providers', which is reserved"),
        (lambda: qo.Limiter({"user:ada": 1}), "provider is 'user:ada', which is reserved"),
        (lambda: qo.Limiter(mistyped(4)), "limits is 4; give limits by name"),
        (lambda: qo.Limiter({}, -1), "total is -1; use a whole number"),
        (lambda: qo.Limiter({}, True), "total is True; use a whole number"),
        (lambda: qo.Limiter(groups={"gpu": -1}), "limit of group 'gpu' is -1; use a whole number"),
        (lambda: qo.Limiter(groups={"": 1}), "group is empty"),
        (lambda: qo.Limiter(groups={"global": 1}), "group is 'global', which is reserved"),
        (lambda: qo.Limiter(groups={"providers": 1}), "group is 'providers', which is reserved"),
        (lambda: qo.Limiter(groups={"total": 1}), "group is 'total', which is reserved"),
        (lambda: qo.Limiter(groups={"user:ada": 1}), "group is 'user:ada', which is reserved"),
        (lambda: qo.Limiter(groups=mistyped(["gpu"])), "groups is ['gpu']; give limits by name"),
        (lambda: qo.Limiter().set_limit("ollama", -1), "limit of provider 'ollama' is -1"),
        (lambda: qo.Limiter().set_limit("global", 1), "provider is 'global', which is reserved"),
        (lambda: qo.Limiter().set_group_limit("gpu", True), "limit of group 'gpu' is True"),
        (lambda: qo.Limiter().set_group_limit("tier:pro", 1), "group is 'tier:pro', which is reserved"),
        (lambda: qo.Limiter().set_total(mistyped("12")), "total is '12'"),
        (lambda: qo.Limiter().acquire(), "acquire was given nothing; name a provider, or groups"),
        (lambda: qo.Limiter().acquire(groups=[]), "groups is empty; name at least one group"),
        (lambda: qo.Limiter().acquire("ollama", groups=["gpu"]), "given provider 'ollama' and groups; give one"),
        (lambda: qo.Limiter().acquire(""), "provider is empty"),
        (lambda: qo.Limiter().acquire(mistyped(["ollama"])), "provider is ['ollama']; use text"),
        (lambda: qo.Limiter().acquire("global"), "provider is 'global', which is reserved"),
        (lambda: qo.Limiter().acquire("priority:50"), "provider is 'priority:50', which is reserved"),
        (lambda: qo.Limiter().acquire(groups="gpu"), "groups is 'gpu'; give a list of names"),
        (lambda: qo.Limiter().acquire(groups=mistyped(3)), "groups is 3; give a list of names"),
        (lambda: qo.Limiter().acquire(groups=["gpu", ""]), "group is empty"),
        (lambda: qo.Limiter().acquire(groups=["gpu", mistyped(None)]), "group is None; use text"),
        (lambda: qo.Limiter().acquire(groups=["gpu", mistyped([])]), "group is []; use text"),
        (lambda: qo.Limiter().acquire(groups=["global"]), "group is 'global', which is reserved"),
        (lambda: qo.Limiter().acquire(groups=["user:ada"]), "group is 'user:ada', which is reserved"),
        (lambda: qo.Limiter().acquire(groups=map(str, range(65))), "groups has 65 names; at most 64 are allowed"),
        (lambda: qo.Limiter().acquire("ollama", timeout=-1), "timeout is -1; use seconds of 0 or more"),
        (lambda: qo.Limiter().acquire("ollama", timeout=float("nan")), "timeout is nan; use seconds"),
        (lambda: qo.Limiter().acquire("ollama", timeout=True), "timeout is True; use seconds"),
        (lambda: qo.Limiter().acquire("ollama", timeout=mistyped("1")), "timeout is '1'; use seconds"),
        (lambda: qo.Limiter().acquire("ollama", priority=100), "priority is 100; use a whole number from 0"),
        (lambda: qo.Limiter().acquire("ollama", priority="soon"), "priority is 'soon'; use a whole number from 0"),
    ],
)
def test_bad_input_is_refused_by_a_sentence_that_names_it(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(qo.InvalidValue, match=re.escape(said)) as refused:
        call()

    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_refused_change_changes_nothing() -> None:
    limiter = qo.Limiter({"ollama": 4}, total=12)
    changes: list[Callable[[], None]] = [lambda: limiter.set_limit("ollama", -1), lambda: limiter.set_total(False)]
    for change in changes:
        with pytest.raises(qo.InvalidValue):
            change()

    assert limiter.get_metrics()["limits"] == {"ollama": 4, "global": 12}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.qo.toml` of the developer's is found from there."""
    monkeypatch.chdir(tmp_path)


def limits(environ: dict[str, str]) -> dict[str, int]:
    return qo.Limiter.from_env(environ).get_metrics()["limits"]


def test_an_empty_environment_gives_the_limits_of_the_specification() -> None:
    assert limits({}) == {"ollama": 4, "gemini": 8, "openai": 10, "deepseek": 8, "global": 12}


def test_the_environment_changes_limits_and_adds_providers() -> None:
    environ = {
        "LLM_MAX_CONCURRENCY_OLLAMA": "2",
        "LLM_MAX_CONCURRENCY_GLOBAL": " 20 ",
        "LLM_MAX_CONCURRENCY_MISTRAL": "0",
        "LLM_MAX_CONCURRENCY_GEMINI": "",
        "LLM_MAX_TOKENS": "many",
    }

    assert limits(environ) == {
        "ollama": 2, "gemini": 8, "openai": 10, "deepseek": 8, "mistral": 0, "global": 20,
    }  # fmt: skip


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MAX_CONCURRENCY_OLLAMA", "7")

    assert qo.Limiter.from_env().get_metrics()["limits"]["ollama"] == 7


def test_the_settings_file_changes_what_is_taken_for_an_unset_variable(tmp_path: Path) -> None:
    (tmp_path / ".qo.toml").write_text("[limiter.env_defaults]\nollama = 3\nglobal = 30\n")

    assert limits({"LLM_MAX_CONCURRENCY_GEMINI": "9"}) == {
        "ollama": 3, "gemini": 9, "openai": 10, "deepseek": 8, "global": 30,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["four", "-1", "1.5", "1e3", "٣", str(TOO_BIG), "9" * 5000, "True"])
def test_a_bad_number_in_the_environment_is_refused_by_a_sentence_that_names_the_variable(text: str) -> None:
    with pytest.raises(qo.SettingsError, match=r"^LLM_MAX_CONCURRENCY_OLLAMA is '.*'; expected a whole number from 0"):
        limits({"LLM_MAX_CONCURRENCY_OLLAMA": text})


@pytest.mark.parametrize("name", ["TOTAL", "PROVIDERS", "", "USER:ADA"])
def test_a_bad_name_in_the_environment_is_refused_by_a_sentence_that_names_the_variable(name: str) -> None:
    with pytest.raises(qo.SettingsError, match=rf"^LLM_MAX_CONCURRENCY_{name} names no provider; the total is LLM_"):
        limits({f"LLM_MAX_CONCURRENCY_{name}": "1"})
