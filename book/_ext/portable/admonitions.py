"""Block quotes that open with a bold lead become boxes.

    > **Definition (equivariance).** A map is equivariant when ...

reads as a quotation everywhere and becomes a titled box here: "Definition: equivariance".
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# The lead of a block quote, and the class that house.css styles.
KINDS = {
    "Note": "vl-note",
    "Warning": "vl-warning",
    "Definition": "vl-definition",
    "Claim": "vl-claim",
    "Try it": "vl-try",
    "Seminar": "vl-seminar",
}
LEAD = re.compile(rf"({'|'.join(KINDS)})(?:\s*\((.+)\))?\.", re.DOTALL)


class DressQuotes(SphinxTransform):
    """Replace every block quote with a known lead by an admonition that keeps its content."""

    default_priority = 700

    def apply(self, **kwargs: object) -> None:
        for quote in list(self.document.findall(nodes.block_quote)):
            lead = _lead(quote)
            match = LEAD.fullmatch(lead.astext()) if lead is not None else None
            if lead is None or match is None:
                continue
            paragraph = lead.parent
            del paragraph[: paragraph.index(lead) + 1]
            if paragraph.children and isinstance(paragraph[0], nodes.Text):
                paragraph[0] = nodes.Text(paragraph[0].astext().lstrip())
            if not any(child.astext() for child in paragraph.children):
                quote.remove(paragraph)
            kind, subject = match.groups()
            title = f"{kind}: {subject}" if subject else kind
            box = nodes.admonition("", nodes.title("", title), *quote.children)
            box["classes"] += ["vl-box", KINDS[kind]]
            box.source, box.line = quote.source, quote.line
            quote.replace_self(box)


def _lead(quote: nodes.block_quote) -> nodes.strong | None:
    """The bold words a block quote opens with, if it does."""
    first = quote.children[0] if quote.children else None
    if not isinstance(first, nodes.paragraph):
        return None
    # The Markdown parser puts an empty text before bold words that open a paragraph.
    words = [child for child in first.children if not isinstance(child, nodes.Text) or child.astext().strip()]
    return words[0] if words and isinstance(words[0], nodes.strong) else None


def setup(app: Sphinx) -> None:
    app.add_transform(DressQuotes)
