"""Somebody else's site: pages at an origin of their own, with the strictest policy under which the element works."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.service.serving import serving

INNER_TEXT = "Your job is in line."


class Site:
    """Pages by path. `origin` is known once it is served."""

    def __init__(self) -> None:
        self.origin = ""
        self.qo = ""
        """The address of the qo server, which the policy of the pages allows."""
        self._pages: dict[str, HTMLResponse] = {}
        self.asgi = Starlette(routes=[Route("/{path:path}", self._answer)])

    def add(self, body: str) -> str:
        """The address of a new page that has this body, loads the element and has the strict policy."""
        script = f'<script type=module src="{self.qo}/widget.js"></script>'
        policy = (
            f"default-src 'none'; script-src {self.qo}; connect-src {self.qo}; base-uri 'none'; form-action 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
        head = f"<!doctype html><html lang=en><meta charset=utf-8><title>A page</title>{script}"
        return self.add_page(f"{head}<body>{body}", policy=policy)

    def add_page(self, text: str, *, policy: str | None) -> str:
        path = f"page{len(self._pages)}"
        self._pages[path] = HTMLResponse(text, headers={"Content-Security-Policy": policy} if policy else None)
        return f"{self.origin}/{path}"

    async def _answer(self, request: Request) -> HTMLResponse:
        return self._pages.get(request.path_params["path"]) or HTMLResponse("", 404)


def place(url: str, **attributes: str) -> str:
    """The element as a page has it."""
    more = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    return f'<qo-place src="{html.escape(url)}"{more}><span>{INNER_TEXT}</span></qo-place>'


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    site = Site()
    async with serving(site.asgi) as served:
        site.origin = served.url
        yield site
