"""How hard the tests look is decided in `exploration.py`. What they looked at is printed when they end."""

import exploration
import pytest

exploration.register_profiles()


def pytest_report_header() -> str:
    return exploration.header()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not exploration.NIGHTLY:
        return
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    lines = [str(line) for report in reports for name, line in report.user_properties if name == exploration.SUMMARY]
    if lines:
        terminalreporter.section(exploration.header())
        for line in sorted(lines):
            terminalreporter.write_line(line)
