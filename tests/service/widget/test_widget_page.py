"""docs/widget.md: its page works from another origin, and it names every part and property that there is."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from qo.settings import load_settings
from tests.by_hand import start
from tests.service.widget.embedding import Embedding, part
from tests.service.widget.test_script import SCRIPT

in_browser = pytest.mark.asyncio(loop_scope="session")

DOCUMENT = (Path(__file__).parents[3] / "docs" / "widget.md").read_text()
QO = "https://qo.example.com"


def example(language: str) -> str:
    found = re.search(rf"^( *)```{language}\n(.*?)^ *```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return textwrap.dedent(found[2])


@in_browser
async def test_the_page_works_from_another_origin(embedding: Embedding, page: Page) -> None:
    url = await embedding.link()
    text = example("html").replace(f"{QO}/watch/TOKEN", url).replace(QO, embedding.site.qo)
    address = embedding.site.add_page(text, policy=None)
    assert not address.startswith(embedding.site.qo)

    await page.goto(address)
    await expect(part(page, "heading")).to_have_text("You are #1 in queue")
    await expect(part(page, "heading")).to_have_css("font-size", "20px")
    await expect(page.get_by_text("See how far your build is.")).to_be_hidden()
    await (await start(embedding.queue)).succeeds()

    await expect(part(page, "heading")).to_have_text("Ready")
    await expect(page).to_have_title("Your shop is ready")


@in_browser
async def test_a_page_of_a_site_that_is_not_named_shows_its_own_text(embedding: Embedding, page: Page) -> None:
    url = await embedding.link()
    text = f'<script src="{embedding.site.qo}/widget.js"></script><qo-place src="{url}">Your job is in line.</qo-place>'
    address = embedding.site.add_page(text, policy=None).replace("127.0.0.1", "localhost")

    await page.goto(address)

    await expect(part(page, "connection")).to_have_text(re.compile("^Connection lost"))
    await expect(part(page, "card")).to_be_hidden()


def test_the_settings_of_the_page_are_accepted() -> None:
    settings = load_settings(tomllib.loads(example("toml")), environ={})

    assert settings.server.widget_origins == ("https://shop.example.com",)


def test_the_page_names_every_part_and_property() -> None:
    script = SCRIPT.read_text()
    layout = re.search(r"PARTS = `(.*?)`", script, re.DOTALL)
    assert layout is not None
    parts = {line.split()[2] for line in layout[1].splitlines()}
    table = DOCUMENT.partition("| `::part()` |")[2].partition("\n\n")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)

    assert set(re.findall(r"`([a-z]+)`", " ".join(first_cells))) == parts
    assert set(re.findall(r"`(--qo-[a-z-]+)`", DOCUMENT)) == set(re.findall(r"--qo-[a-z-]+", script))
