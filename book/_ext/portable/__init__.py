"""The book's own Sphinx extension: it dresses portable Markdown and keeps the site self-contained.

Chapters are plain Markdown and Python, so that they read well in Colab, on GitHub and in JupyterLab. What the
book can do better is added here, and what a reader must never meet is reported as a warning, which a strict build
turns into a failure:

- `admonitions`: block quotes with a bold lead become styled boxes.
- `citations`: a link to a paper must also stand in the bibliography.
- `references`: the list of works gives each one address.
- `docstrings`: the API page shows our docstrings, which are plain text, as what they look like.
- `pages`: images of the cells' HTML become lazily loaded files; no picture goes without words.
- `assets`: MathJax and the icons come from installed packages, and only what is used.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from . import admonitions, assets, citations, docstrings, pages, references


def setup(app: Sphinx) -> dict[str, Any]:
    for part in (admonitions, citations, references, docstrings, pages, assets):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
