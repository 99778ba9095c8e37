"""`qo completion`: completion of commands and options in a shell."""

from __future__ import annotations

import click

from qo.cli.options import Target, store_options
from qo.cli.output import show_json

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@store_options
def completion(target: Target, *, shell: str) -> None:
    """Print the script that completes commands and options of qo in SHELL.

    \b
    bash   echo 'eval "$(qo completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(qo completion zsh)"' >> ~/.zshrc      (behind compinit)
    fish   qo completion fish > ~/.config/fish/completions/qo.fish

    A new shell has it.
    """
    from click.shell_completion import get_completion_class

    from qo.cli.main import qo

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(qo, {}, "qo", "_QO_COMPLETE").source()
    if target.as_json:
        show_json({"shell": shell, "script": script})
    else:
        click.echo(script)
