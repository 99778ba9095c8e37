"""The documentation as a site: `python -m tools.site` writes it to `.site/html`.

`source` copies the pages of `docs/` and adds the reference, `reference/` makes that from the code, and Zensical makes
HTML of both (`building`, `zensical.toml`). Nothing is loaded from a network.
"""
