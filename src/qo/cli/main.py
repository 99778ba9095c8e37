"""The entry point: the list of commands, and the exit codes. Imports nothing that `qo --help` does not need."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import NoReturn

import click

from qo import __version__
from qo.cli.lazy import LazyGroup
from qo.cli.options import store_options_of_all
from qo.errors import QoError
from qo.meanings import FAILED, meaning_of

INTERRUPTED = 130

COMMANDS = {
    "init": ("qo.cli.init:init", "Write a commented .qo.toml with every setting at its default."),
    "up": ("qo.cli.up:up", "Work on the embedded store until Ctrl-C; --demo shows it alive."),
    "serve": ("qo.cli.serve:serve", "Serve the queue over HTTP."),
    "worker": ("qo.cli.worker:worker", "Run the worker that module:worker makes."),
    "apply": ("qo.cli.apply:apply", "Make the store's limits exactly those of the settings."),
    "submit": ("qo.cli.submit:submit", "Submit a job."),
    "jobs": ("qo.cli.jobs:jobs", "List jobs: those in line in their order, then the others."),
    "job": ("qo.cli.job:job", "Show a job, or with --watch follow it until it has ended."),
    "why": ("qo.cli.why:why", "Say why a job is not running."),
    "cancel": ("qo.cli.change:cancel", "Cancel a job, or all unfinished ones of a parent."),
    "retry": ("qo.cli.change:retry", "Put a failed job, or all of them, in line again."),
    "confirm": ("qo.cli.change:confirm", "Let a job that waits for a confirmation go on."),
    "queue": ("qo.cli.queue:queue", "The line: list, move, priority, pause, resume."),
    "concurrency": ("qo.cli.concurrency:concurrency", "Limits and slots: status, set, remove, release."),
    "history": ("qo.cli.history:history", "List jobs that have ended, or the figures of each day."),
    "record": ("qo.cli.record:record", "Write the history of a queue on Redis into PostgreSQL."),
    "workers": ("qo.cli.workers:workers", "Show the workers that run now."),
    "doctor": ("qo.cli.doctor:doctor", "Say what is wrong with the set-up, and what to do."),
    "usage": ("qo.cli.usage:usage", "Show how much of the daily quota a user has used."),
    "tier": ("qo.cli.tier:tier", "Give a user a tier."),
    "audit": ("qo.cli.audit:audit", "Show who changed what, and when."),
    "keys": ("qo.cli.keys:keys", "API keys of the HTTP service: create, list, revoke."),
    "bench": ("qo.cli.bench:bench", "Measure how fast this store is here."),
    "completion": ("qo.cli.completion:completion", "Print a script that completes qo's commands in your shell."),
}

EPILOG = """\b
Exit codes:
    0  done
    1  it failed, was refused, was not found or did not end in time
    2  the call was wrong: an unknown option, a value that is not allowed
    3  the store cannot be reached, or there is none yet
  130  interrupted by Ctrl-C

--url, --namespace and --json are understood by every command. Settings come from the nearest .qo.toml, QO_URL and
QO_SECTION__KEY; `qo init` writes a file that names them all."""


@click.group(
    cls=LazyGroup, commands_at=COMMANDS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="qo %(version)s")
@store_options_of_all
def qo() -> None:
    """A job queue in which every job knows its place in line and no limit is ever exceeded."""


def main() -> NoReturn:
    """Run the call in `sys.argv` and exit with its code. An expected error is printed as one sentence."""
    as_json = "--json" in sys.argv  # must also be known when click cannot parse the call
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character shows ? and not an error
    try:
        code = qo.main(prog_name="qo", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        if as_json:
            _show_error_as_json(error.format_message(), type(error).__name__)
        else:
            _show_usage(error)
            _show_error(error.format_message())
        sys.exit(error.exit_code)
    except QoError as error:
        if as_json:
            _show_error_as_json(str(error), type(error).__name__)
        else:
            _show_error(str(error))
        sys.exit(meaning_of(error).exit_code)
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        # The reader of the output has gone (`| head`). The interpreter's last flush must not raise, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


def _show_usage(error: click.ClickException) -> None:
    """The lines above the error of a wrong call, as click prints them."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)


def _show_error(sentence: str) -> None:
    from qo.cli.terminal import complain

    complain(sentence)


def _show_error_as_json(sentence: str, kind: str) -> None:
    import json

    click.echo(json.dumps({"error": sentence, "kind": kind}, ensure_ascii=False), err=True)
