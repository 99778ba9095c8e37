"""`qo init`: the file has the defaults, each with its purpose."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from qo.cli.init import EXAMPLES
from qo.settings import FILE_NAME, PURPOSES, Settings, load_settings
from tests.cli.conftest import Call


def keys() -> set[str]:
    """Every setting as `section.key`; the keys of all tiers once."""
    found = set()
    for section in Settings.__struct_fields__:
        value = getattr(Settings(), section)
        struct = next(iter(value.values())) if section == "tiers" else value
        found |= {f"{section}.{key}" for key in struct.__struct_fields__}
    return found


def test_the_file_is_the_defaults_and_a_first_limit_on_everything(call: Callable[..., Call], tmp_path: Path) -> None:
    done = call("init")

    assert done.code == 0
    assert str(tmp_path / FILE_NAME) in done.out
    limited = msgspec.structs.replace(Settings().concurrency, limits={"global": 5})
    beside = msgspec.structs.replace(Settings().store, url=f"sqlite:///{tmp_path}/qo.db")
    assert load_settings(directory=tmp_path, environ={}) == Settings(store=beside, concurrency=limited)


def test_every_key_of_every_section_is_there_and_explained(call: Callable[..., Call], tmp_path: Path) -> None:
    call("init")

    text = (tmp_path / FILE_NAME).read_text()

    sections = dict(re.findall(r"^\[([\w.]+)\]\n((?:(?!\[).*\n?)*)", text, re.MULTILINE))
    for section in (*(name for name in Settings.__struct_fields__ if name != "tiers"), "tiers.bootstrapper"):
        for key in [key.partition(".")[2] for key in keys() if key.startswith(f"{section.partition('.')[0]}.")]:
            named = re.search(rf"^(# )?{key} = ", sections[section], re.MULTILINE) or f"{section}.{key}" in sections
            assert named, f"{section}.{key}"


def test_every_key_has_a_purpose_and_the_file_shows_it_above_the_key(call: Callable[..., Call], tmp_path: Path) -> None:
    call("init")

    lines = (tmp_path / FILE_NAME).read_text().splitlines()

    assert set(PURPOSES) == keys()
    for path, purpose in PURPOSES.items():
        (number,) = [number for number, line in enumerate(lines) if line.startswith(f"# {purpose}")]
        key = path.partition(".")[2]
        below, above = lines[number + 1], lines[number - 1]
        assert below.removeprefix("# ").startswith(f"{key} = ") or above.endswith(f".{key}]"), path


def test_a_purpose_is_one_whole_sentence() -> None:
    for path, purpose in PURPOSES.items():
        assert purpose[0].isupper(), path
        assert purpose.endswith("."), path


def test_a_setting_that_is_off_is_written_so_that_it_can_be_turned_on(
    call: Callable[..., Call], tmp_path: Path
) -> None:
    call("init")
    path = tmp_path / FILE_NAME

    path.write_text(re.sub(r"^# (\w+ = )", r"\1", path.read_text(), flags=re.MULTILINE))

    settings = load_settings(directory=tmp_path, environ={})
    for key, example in EXAMPLES.items():
        section, _, name = key.partition(".")
        assert getattr(getattr(settings, section), name) == example


def test_a_file_that_is_there_is_kept_unless_forced(call: Callable[..., Call], tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("# mine\n")

    refused = call("init")
    kept = (tmp_path / FILE_NAME).read_text()
    forced = call("init", "--force", "--json")

    assert refused.code == 1
    assert "--force" in refused.err
    assert kept == "# mine\n"
    assert forced.json == {"path": str(tmp_path / FILE_NAME)}
    assert "[queue]" in (tmp_path / FILE_NAME).read_text()


def test_a_url_given_to_it_is_written_into_the_file(call: Callable[..., Call], tmp_path: Path) -> None:
    call("init", "--url", "sqlite:///team.db", "--namespace", "blue")

    call("submit", "t")

    assert (tmp_path / "team.blue.db").exists()
