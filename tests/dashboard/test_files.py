"""The files of the dashboard: what is vendored, how large they are, how they are served."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from graphlib import TopologicalSorter
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, Request, expect

from qo.service.page_files import FOLDER, page_files, without_comments
from qo.service.page_script import UnknownForm, joined_script
from tests.dashboard.shots import PAGES
from tests.service.conftest import Service

VENDOR = FOLDER / "vendor"
OWN_BYTES_AT_MOST = 80 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
pytestmark = pytest.mark.asyncio(loop_scope="session")


def own_files() -> list[Path]:
    return sorted(path for path in FOLDER.rglob("*") if path.is_file() and VENDOR not in path.parents)


async def test_the_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_bytes())

    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del found["manifest.json"]
    assert found == manifest["sha256"]
    licences = (VENDOR / "LICENSES.txt").read_text()
    for name, library in manifest["libraries"].items():
        assert f"{name} {library['version']}\n" in licences


async def test_the_own_files_are_small_together_as_they_are_sent(page: Page, served: Service) -> None:
    """Every page is opened, and every file counted that the browser has loaded for them, compressed as it came."""
    sizes: dict[str, int] = {}

    async def count(request: Request) -> None:
        path = httpx.URL(request.url).path
        if not path.startswith(("/api/", "/page/vendor/")):
            sizes[path] = (await request.sizes())["responseBodySize"]

    loaded: list[asyncio.Task[None]] = []
    page.on("requestfinished", lambda request: loaded.append(asyncio.ensure_future(count(request))))
    for address in PAGES.values():
        await page.goto(f"/{address}")
        await expect(page.locator("main h1").first).to_be_attached()
    await asyncio.gather(*loaded)

    assert {"/", "/page/app.js", "/page/style.css"} <= sizes.keys()
    assert sum(sizes.values()) < OWN_BYTES_AT_MOST


async def test_comments_and_indentation_go_and_nothing_else_changes() -> None:
    source = "/* A\n   b */\nlet c = 1;\n  // d\n\n  f('//'); // e\n/** g */\nh();"

    assert without_comments(source) == "let c = 1;\nf('//'); // e\nh();\n"


async def test_scripts_import_by_relative_paths_of_files_that_are_there() -> None:
    imports = re.compile(r"""(?:from|import)\s*\(?\s*["']([^"']+)["']""")
    for script in FOLDER.glob("js/**/*.js"):
        for wanted in imports.findall(script.read_text()):
            assert wanted.startswith("."), f"{script}: {wanted}"
            assert (script.parent / wanted).is_file(), f"{script}: {wanted}"


async def test_modules_run_once_and_when_they_are_needed() -> None:
    sources = {
        "js/app.js": 'import { one } from "./one.js";\nexport const all = () => import("./pages/two.js");\none();\n',
        "js/one.js": 'import { a as b } from "../vendor/x.js";\nexport async function one() {}\n',
        "js/pages/two.js": 'import { one } from "../one.js";\nimport y from "../../vendor/y.js";\n'
        "export class Two {}\n",
    }

    joined = joined_script(sources, "js/app.js", addresses={"vendor/x.js": "./x", "vendor/y.js": "./y"})

    assert joined.startswith('import * as v0 from "./x";\n')
    assert 'const all = () => bring("js/pages/two.js", ["./y"]);\n' in joined
    assert joined.endswith(
        'const { one } = need("js/one.js");\nconst all = () => bring("js/pages/two.js", ["./y"]);\none();\n'
    )
    assert (
        '"js/one.js": () => {\nconst { a: b } = vendored["./x"];\nasync function one() {}\nreturn { one };\n},\n'
        in joined
    )
    assert (
        'const { one } = need("js/one.js");\nconst y = vendored["./y"].default;\nclass Two {}\nreturn { Two };\n'
        in joined
    )


@pytest.mark.parametrize("line", ['import "./x.js";', "export default 1;", "export { a };", "load(import.meta.url);"])
async def test_a_module_that_cannot_be_joined_is_an_error_that_names_it(line: str) -> None:
    with pytest.raises(UnknownForm, match=re.escape(f"js/app.js has the line {line!r}")):
        joined_script({"js/app.js": f"{line}\n"}, "js/app.js", addresses={})


async def test_no_module_needs_itself() -> None:
    """A joined module runs when it is first needed, so that a circle would never end."""
    needs = {
        script: [
            (script.parent / wanted).resolve()
            for wanted in re.findall(r'^import [^"]*from "([^"]+)"', script.read_text(), re.M)
        ]
        for script in FOLDER.glob("js/**/*.js")
    }
    TopologicalSorter(needs).prepare()  # raises CycleError


async def test_nothing_is_inline_and_nothing_comes_from_another_host() -> None:
    index = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", index)
    for path in own_files():
        assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", path.read_text()), path


async def test_the_page_and_its_files_are_open_and_keep_the_policy(served: Service) -> None:
    for path in ("/", "/page/js/app.js", "/page/js/line/row.js", "/page/vendor/inter.woff2"):
        answer = await served.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_file_is_kept_for_good_under_the_version_that_the_page_names(served: Service) -> None:
    index = await served.client.get("/")
    named = re.findall(r'"(page/[^"]+)"', index.text)

    assert index.headers["cache-control"] == "no-cache"
    assert len(named) >= 7
    for address in named:
        answer = await served.client.get(f"/{address}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "max-age=31536000, immutable"), address
    assert (await served.client.get("/page/app.js?0123")).headers["cache-control"] == "no-cache"


async def test_a_browser_asks_whether_a_file_has_changed(served: Service) -> None:
    first = await served.client.get("/page/js/app.js")
    again = await served.client.get("/page/js/app.js", headers={"If-None-Match": first.headers["etag"]})
    plain = await served.client.get("/page/js/app.js", headers={"Accept-Encoding": "identity"})

    assert (first.headers["cache-control"], first.headers["content-encoding"]) == ("no-cache", "gzip")
    assert (again.status_code, again.content) == (304, b"")
    assert plain.content == first.content == page_files()["js/app.js"].plain
    assert plain.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    "path", ["/page/nothing.js", "/page/%2e%2e/app.py", "/page/js/..%2f..%2f..%2fapp.py", "/page/js"]
)
async def test_only_files_of_the_page_are_served(served: Service, path: str) -> None:
    assert (await served.client.get(httpx.URL(path))).status_code == 404
