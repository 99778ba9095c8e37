"""`python -m qo` is the `qo` command."""

from qo.cli.main import main

main()
