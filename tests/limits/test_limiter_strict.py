"""A strict limiter refuses names without a limit."""

from __future__ import annotations

import re

import pytest

import qo


def refusal(limiter: qo.Limiter, provider: str | None = None, *, groups: list[str] | None = None) -> str:
    with pytest.raises(qo.InvalidValue) as refused:
        limiter.acquire(provider, groups=groups)
    return str(refused.value)


def test_a_name_without_a_limit_is_refused_by_a_sentence_that_lists_the_others() -> None:
    limiter = qo.Limiter({"ollama": 4, "gemini": 8}, total=12, groups={"gpu": 1}, strict=True)

    assert refusal(limiter, "olama") == (
        "provider is 'olama', for which this strict limiter has no limit; it has limits for gemini, gpu, ollama. "
        "Correct the name, or give it a limit."
    )
    assert refusal(limiter, groups=["gpu", "cpu"]).startswith("group is 'cpu', for which this strict limiter has no")
    assert refusal(limiter, groups=["gpu", "provider:x"]).startswith("provider is 'x', for which")
    assert limiter.get_metrics()["in_flight"]["total"] == 0


def test_names_with_a_limit_are_let_in() -> None:
    limiter = qo.Limiter({"ollama": 4}, groups={"gpu": 1}, strict=True)

    with limiter.acquire("ollama"), limiter.acquire(groups=["gpu"]):
        assert limiter.get_metrics()["in_flight"]["ollama"] == 1


def test_a_limit_that_is_set_or_removed_later_counts() -> None:
    limiter = qo.Limiter(strict=True)
    assert "it has limits for nothing" in refusal(limiter, "ollama")

    limiter.set_limit("ollama", 0)
    with pytest.raises(qo.Timeout), limiter.acquire("ollama", timeout=0):
        raise AssertionError
    limiter.set_limit("ollama", None)

    assert "for which this strict limiter has no limit" in refusal(limiter, "ollama")


def test_limits_of_the_environment_can_be_strict() -> None:
    limiter = qo.Limiter.from_env({"LLM_MAX_CONCURRENCY_MISTRAL": "2"}, strict=True)

    with limiter.acquire("mistral"), limiter.acquire("openai"):
        pass
    assert re.search("limits for .*mistral", refusal(limiter, "mistrall"))


def test_without_strict_a_name_without_a_limit_is_let_in() -> None:
    with qo.Limiter({"ollama": 4}).acquire("olama"):
        pass


def test_a_strict_limiter_on_a_queue_refuses_before_it_asks_the_store() -> None:
    with qo.sync.connect("memory://") as queue:
        limiter = qo.Limiter({"ollama": 1}, queue=queue, strict=True)

        assert refusal(limiter, "olama").startswith("provider is 'olama'")
        with limiter.acquire("ollama") as lease:
            assert lease.slots["provider:ollama"] == 0
        limiter.close()
