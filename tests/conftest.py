"""Connects pytest with `exploration.py`: profiles, seeds and time limits, and the records of a nightly."""

from collections.abc import Generator
from pathlib import Path

import pytest

# Modules beside the tests check things too: a failure shows the values that were compared, not only where it was.
PARTS = {path.stem for path in Path(__file__).parent.iterdir()} - {"__init__", "__pycache__", "conftest"}
pytest.register_assert_rewrite(*(f"tests.{part}" for part in sorted(PARTS)))

from tests import exploration  # noqa: E402 - behind the line that has its asserts rewritten

exploration.register_profiles()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not exploration.NIGHTLY:
        return
    if config.option.hypothesis_seed is None:
        # Read by Hypothesis in its own hook, after this one.
        config.option.hypothesis_seed = str(exploration.number_from("examples"))
    if not hasattr(config, "workerinput"):  # the process that starts those of pytest-xdist
        exploration.note_progress(exploration.header())


def pytest_report_header() -> str:
    return exploration.header()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if exploration.NIGHTLY or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(exploration.NIGHTLY_TEST_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Histories write their own lines and failures.
    if exploration.NIGHTLY and report.when == "call" and item.get_closest_marker("histories") is None:
        statistics: str | None = getattr(item, "hypothesis_statistics", None)
        if statistics is not None:
            line = exploration.examples_line(item.nodeid, statistics)
            exploration.note_progress(line)
            report.user_properties.append((exploration.SUMMARY, line))
        if report.failed:
            command = exploration.how_to_replay(item.nodeid)
            exploration.keep_failure(item.nodeid, f"{command}\n\n{report.longreprtext}\n")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not exploration.NIGHTLY:
        return
    counts = {outcome: terminalreporter.getreports(outcome) for outcome in ("passed", "failed", "error")}
    reports = [report for found in counts.values() for report in found if isinstance(report, pytest.TestReport)]
    lines = sorted(
        str(line) for report in reports for name, line in report.user_properties if name == exploration.SUMMARY
    )
    exploration.keep_summary(", ".join(f"{len(found)} {outcome}" for outcome, found in counts.items()), lines)
    if lines:
        terminalreporter.section(exploration.header())
        for line in lines:
            terminalreporter.write_line(line)
