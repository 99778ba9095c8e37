"""Every Python example of every page passes mypy as strictly as qo itself, and pyright's strict mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.docs.examples import ROOT, WITH_EXAMPLES, examples_of, name_of

HEADER = '# mypy: disable-error-code="no-redef"\n'  # a page may define a name again
OF_THE_READER = {
    "my_app": """
def ask_model(prompt: str) -> str: ...
async def ask_model_async(prompt: str) -> str: ...
"""
}
"""Modules that pages take for granted."""
PYRIGHT = {
    "typeCheckingMode": "strict",
    "exclude": ["how_to_web_views.py"],  # Django ships no types
    # A page defines what its reader goes on with, may define a name again, and stands beside a stub of their module.
    "reportUnusedVariable": False,
    "reportUnusedFunction": False,
    "reportRedeclaration": False,
    "reportMissingModuleSource": False,
    "reportDeprecated": False,  # AsyncIterator for a context manager is what readers know
}


def flat(prefix: str, module: str) -> str:
    return f"{prefix}_{module}".replace(".", "_")


def write_modules(folder: Path) -> list[str]:
    """Each page as a module, and its files as modules beside it, all under names that no other page has."""
    written = []
    for page in WITH_EXAMPLES:
        examples = examples_of(page)
        prefix = re.sub(r"\W", "_", name_of(page).removesuffix(".md")).lower()
        modules = {name.removesuffix(".py").replace("/", "."): text for name, text in examples.files.items()}
        if examples.program:
            # In a function, because it awaits as `python -m asyncio` allows it.
            modules["page"] = "async def page() -> None:\n" + indent("\n".join(examples.program), "    ")
        for name, text in modules.items():
            for other in modules:
                imported = rf"^(\s*)(from|import) {re.escape(other)}\b"
                text = re.sub(imported, rf"\1\2 {flat(prefix, other)}", text, flags=re.MULTILINE)
            file = folder / f"{flat(prefix, name)}.py"
            file.write_text(HEADER + text)
            written.append(str(file))
    for name, text in OF_THE_READER.items():
        (folder / f"{name}.pyi").write_text(text)
        written.append(str(folder / f"{name}.pyi"))
    return written


def test_mypy_finds_nothing_wrong_with_the_examples(tmp_path: Path) -> None:
    modules = write_modules(tmp_path)

    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert len(modules) > 15
    assert done.stdout.replace(f"{tmp_path}/", "") == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_pyright_finds_nothing_wrong_with_the_examples(tmp_path: Path) -> None:
    write_modules(tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))

    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 15
    assert [(each["file"], each["message"]) for each in found["generalDiagnostics"]] == []
