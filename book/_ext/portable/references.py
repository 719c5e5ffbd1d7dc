"""How the references page prints a work: by author, and with one address, not the same one twice."""

from __future__ import annotations

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style
from pybtex.style.template import Node, field, href, sentence
from sphinx.application import Sphinx

NAME = "one_address"


class OneAddress(Style):  # type: ignore[misc]
    """Pybtex's alpha style, whose arXiv entries would name the paper by its address and again by its number."""

    def format_web_refs(self, e: Entry) -> Node:
        if "eprint" in e.fields:
            address = self.format_eprint(e)
        elif "doi" in e.fields:
            address = self.format_doi(e)
        else:
            address = href(field("url", raw=True))[field("url", raw=True)]
        return sentence(capfirst=False)[address]


def setup(app: Sphinx) -> None:
    register_plugin("pybtex.style.formatting", NAME, OneAddress)
