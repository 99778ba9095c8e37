"""Parts of qo that need packages which a plain installation does not bring."""

from __future__ import annotations

from importlib.util import find_spec

import click


def need_server() -> None:
    """Raises with what to install, where the packages of the HTTP service are missing."""
    if missing := [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]:
        raise click.ClickException(
            f"The HTTP service needs {', '.join(missing)}; install them with: pip install 'qo-queue[server]'."
        )
