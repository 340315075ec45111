"""Settings of Sphinx: `make docs` builds a website of the pages, which stay as GitHub shows them."""

from __future__ import annotations

import re
from pathlib import Path

project = html_title = "WAL Pipeline Server"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["docs/**", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "dist"]
suppress_warnings = ["toc.not_included", "misc.highlighting_failure", "myst.header"]
smartquotes = False
myst_heading_anchors = 6
html_theme = "furo"
html_static_path = html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False


def add_navigation(app, page, source):
    """Make each list of an index a group of the navigation, named after the heading above the list."""
    if not page.endswith("README"):
        return
    for part in source[0].split("\n## "):
        heading, _, text = part.partition("\n")
        caption = "" if part is heading or part.startswith("#") else f":caption: {heading}\n"
        pages = dict.fromkeys(re.findall(r"\]\((?!https?:)([^)#]+)\.md\)", text))
        if pages:
            names = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n{caption}\n{names}\n```\n"


def add_first_page(app, error):
    """Write the page that a browser opens first. It leads to the index of the docs."""
    first = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
    Path(app.outdir, "index.html").write_text(first)


def setup(app):
    """Connect the functions of this file, as Sphinx wants it."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_first_page)
