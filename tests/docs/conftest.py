"""The installed `qo`, for the commands that pages show."""

from tests.cli.conftest import app, call, start, submit

__all__ = ["app", "call", "start", "submit"]
