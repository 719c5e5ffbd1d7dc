"""What is done to a page's HTML before it is written.

Images that cells embed as data become files, loaded only when they come into view: a figure's dark face, which a
reader in the light never sees, then costs nothing. Every picture must have words: an image its alternative text,
a figure its caption.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from html import escape, unescape
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
IMG = re.compile(r"<img\b[^>]*>", re.I)
DATA = re.compile(r"""\bsrc\s*=\s*(["'])data:image/(png|jpeg|gif|webp|svg\+xml);base64,([^"']*)\1""", re.I)
SUFFIX = {"png": "png", "jpeg": "jpg", "gif": "gif", "webp": "webp", "svg+xml": "svg"}


# The bibliography's HTML says it is a list of entries in roles that are withdrawn or not allowed there.
WRONG_ROLES = re.compile(r' role="(?:list|doc-biblioentry|doc-backlink)"')
# A data frame's corner is an empty heading of nothing.
EMPTY_HEADING = re.compile(r"<th>\s*</th>")
DESCRIPTION_LENGTH = 200


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give a page that has no description its first paragraph, for search engines and shared links."""
    if app.builder.format != "html" or doctree is None or 'name="description"' in context["metatags"]:
        return
    text = description(doctree)
    if text:
        context["metatags"] += f'<meta name="description" content="{escape(text)}">\n'
        context["meta"] = {"og:description": text} | (context["meta"] or {})


def description(doctree: nodes.document) -> str:
    """The first paragraph of running text, cut at a word."""
    for section in doctree.findall(nodes.section):
        for child in section.children:
            if isinstance(child, nodes.paragraph) and len(text := " ".join(child.astext().split())) > 40:
                cut = text[: DESCRIPTION_LENGTH + 1].rsplit(" ", 1)[0]
                return text if len(text) <= DESCRIPTION_LENGTH else cut.rstrip(" ,.;:") + " ..."
    return ""


def finish(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    if app.builder.format != "html" or "body" not in context or doctree is None:
        return
    if not app.config.html_baseurl:  # an address that is not known cannot be told
        context["metatags"] = re.sub(r'<meta property="og:url"[^>]*>\s*', "", context["metatags"])
    context["body"] = EMPTY_HEADING.sub("<td></td>", WRONG_ROLES.sub("", context["body"]))
    for fault in faults(context["body"]):
        LOGGER.warning("%s", fault, location=page, type="portable", subtype="figure")
    folder = Path(app.outdir, app.builder.imagedir)
    prefix = context["pathto"](app.builder.imagedir, 1)
    context["body"] = IMG.sub(lambda tag: _externalise(tag[0], folder, prefix), context["body"])


def _externalise(tag: str, folder: Path, prefix: str) -> str:
    """An img tag whose data stand in a file of `folder`, loaded lazily, of a known size so that nothing jumps."""
    if match := DATA.search(tag):
        try:
            content = base64.b64decode(unescape(match[3]))
        except binascii.Error as error:
            raise ValueError(f"An embedded image is not base64 ({error}): {tag[:120]}") from error
        kind = match[2].lower()
        name = f"{hashlib.sha256(content).hexdigest()[:20]}.{SUFFIX[kind]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        tag = tag[: match.start()] + f'src="{escape(prefix)}/{name}"' + tag[match.end() :]
        if kind != "svg+xml" and not re.search(r"\bwidth\s*=", tag):
            width, height = Image.open(BytesIO(content)).size
            tag = _add(tag, f'width="{width}" height="{height}"')
    if not re.search(r"\bloading\s*=", tag):
        tag = _add(tag, 'loading="lazy" decoding="async"')
    return tag


def _add(tag: str, attributes: str) -> str:
    return re.sub(r"\s*/?>$", f" {attributes}>", tag)


class _Pictures(HTMLParser):
    """Collects what is wrong with the pictures of a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.figures: list[dict[str, Any]] = []  # the open ones, innermost last

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img":
            alt = (given.get("alt") or "").strip()
            if not alt or "_images/" in alt or alt == given.get("src"):
                source = (given.get("src") or "")[:60]
                self.faults.append(f"An image has no alternative text: {source} (alt={given.get('alt')!r}).")
        elif tag == "figure":
            self.figures.append({"classes": given.get("class") or "", "caption": "", "in_caption": False})
        elif tag == "figcaption" and self.figures:
            self.figures[-1]["in_caption"] = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "figcaption" and self.figures:
            self.figures[-1]["in_caption"] = False
        elif tag == "figure" and self.figures:
            figure = self.figures.pop()
            if "vl-figure" in figure["classes"].split() and not figure["caption"].strip():
                self.faults.append("A figure has no caption.")

    def handle_data(self, data: str) -> None:
        if self.figures and self.figures[-1]["in_caption"]:
            self.figures[-1]["caption"] += data


def faults(html: str) -> list[str]:
    """One sentence for each picture without words in a piece of HTML."""
    parser = _Pictures()
    parser.feed(html)
    parser.close()
    return parser.faults


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", describe, priority=400)  # before the extension that writes the og: tags
    app.connect("html-page-context", finish, priority=600)  # and after it
