"""Schemathesis calls every operation as the OpenAPI document describes it, and as it must not be called, one by one and
in sequences that follow from the document. No answer is a 500, and none differs from the document in its status, its
content type or its body."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.service import shared
from qo.service.access import attempts
from qo.service.access.caller import Role
from qo.service.stream.response import Times
from tests.service.conftest import Service, running_service
from tests.service.who_may import (
    ME,
    Names,
    confirming_job,
    failed_job,
    held_slot,
    limited_group,
    parent,
    person,
    waiting_job,
    watched_job,
)

IN_THE_GATE = ["--max-examples=3", "--generation-deterministic"]
"""The same requests in every run, in less than 30 seconds."""
BUSY_SECONDS = 600
"""What it may take on a machine that does ten other things; alone it takes 20 s."""
NIGHTLY = ["--max-time=600", "--generation-database=none"]
SETTINGS = """
[checks]
# Which cursors, tiers and groups are right is known to the server alone; its 422 says which are.
positive_data_acceptance.enabled = false
# It calls everything twice more; test_who_may.py has every route with every kind of wrong key.
ignored_auth.enabled = false

[[operations]]
include-name = "POST /api/jobs"
# In a list, what is no job gets a problem in its place, and the answer is a 200.
checks.negative_data_rejection.enabled = false

[phases.coverage]
unexpected-methods = ["TRACE"]  # all others would be a fifth of all requests, for the same answer

[phases.stateful.generation]
max-examples = 20
"""
MADE = [waiting_job, watched_job, confirming_job, failed_job, held_slot, limited_group, parent, person]
"""What is there from the beginning."""


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(IN_THE_GATE, id="gate", marks=pytest.mark.timeout(BUSY_SECONDS)),
        pytest.param(NIGHTLY, id="nightly", marks=pytest.mark.nightly),
    ],
)
async def test_every_answer_is_as_the_document_says(
    bounds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Schemathesis reads each answer to its end, and signs in with many wrong keys.
    monkeypatch.setattr(shared, "times_from", lambda settings: Times(longest_seconds=0.05))
    monkeypatch.setattr(attempts, "WRONG_KEYS_A_MINUTE", 1_000_000)
    settings = {"server": {"port": 0}, "queue": {"cap": 1_000_000}}
    async with (
        await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue,
        running_service(queue) as served,
    ):
        admin = await served.key(Role.ADMIN)
        made = [await make(served, ME, make.__name__) for make in MADE]
        (tmp_path / "schemathesis.toml").write_text(SETTINGS + "".join(known_names(made)))
        (tmp_path / "openapi.json").write_text(json.dumps(await strict_document(served)))
        output, code = await schemathesis(
            *("run", "openapi.json", f"--url={served.client.base_url}", "--no-color"),
            f"--header=Authorization: {admin['Authorization']}",
            *bounds,
            folder=tmp_path,
        )

    assert code == 0, output


def known_names(made: list[Names]) -> Iterator[str]:
    """Settings from which Schemathesis takes half of the names in paths."""
    for part in {part for names in made for part in names}:
        values = [int(names[part]) if part == "slot" else names[part] for names in made if part in names]
        yield f"[dictionaries.{part}]\nvalues = {json.dumps(values)}\n"
        yield f'[parameters."path.{part}"]\ndictionary = "{part}"\nprobability = 0.5\n'


async def strict_document(served: Service) -> dict[str, Any]:
    """The document, in which no answer has a field that is not named. Clients are not told so: they are to ignore new
    fields. It has a key to sign in with, too."""
    document: dict[str, Any] = (await served.client.get("/openapi.json")).json()
    sign_in = document["paths"]["/api/session"]["post"]["requestBody"]["content"]["application/json"]
    sign_in["example"] = {"key": served.keys_made[0]}
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return document


async def schemathesis(*arguments: str, folder: Path) -> tuple[str, int]:
    """Run its command. Returns what it has printed, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return output.decode(), process.returncode
