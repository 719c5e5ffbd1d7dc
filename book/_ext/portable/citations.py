"""A chapter cites by a plain link to the paper; each such link must also stand in the bibliography.

The link then carries the full reference as its title, so that pointing at it says which paper it is.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from pybtex.database import Entry, parse_file
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
# arXiv identifiers, old and new, without the version; and DOIs.
ARXIV = re.compile(
    r"^https?://(?:www\.)?arxiv\.org/(?:abs|pdf|html)/([\w.-]+(?:/\d+)?\d)(?:v\d+)?(?:\.pdf)?/?$", re.I
)
DOI = re.compile(r"^https?://(?:dx\.)?doi\.org/(10\.\S+)$", re.I)


def paper(address: str) -> str | None:
    """What an address cites, as "arxiv:2010.11929" or "doi:10.1000/xyz"; None when it is no paper's address."""
    if match := ARXIV.match(address):
        return "arxiv:" + re.sub(r"v\d+$", "", match[1])
    if match := DOI.match(address):
        found = match[1].rstrip("/").lower()
        return "arxiv:" + found.removeprefix("10.48550/arxiv.") if "10.48550/arxiv." in found else "doi:" + found
    return None


def bibliography(files: list[Path]) -> dict[str, str]:
    """Every paper of the BibTeX files, as `paper` names it, with its reference in one line."""
    known: dict[str, str] = {}
    for file in files:
        for entry in parse_file(file, bib_format="bibtex").entries.values():
            fields = entry.fields
            names = {paper(fields.get("url", "")), paper("https://doi.org/" + fields.get("doi", "none"))}
            if fields.get("eprint"):
                names.add(paper("https://arxiv.org/abs/" + fields["eprint"]))
            known |= {name: _reference(entry) for name in names if name}
    return known


def _reference(entry: Entry) -> str:
    """ "Dosovitskiy et al., An Image is Worth 16x16 Words, 2021" """
    people = [" ".join(person.prelast_names + person.last_names) for person in entry.persons.get("author", [])]
    who = people[0] + " et al." if len(people) > 2 else " and ".join(people)
    parts = [who, entry.fields.get("title", ""), entry.fields.get("year", "")]
    return re.sub(r"[{}\\]", "", ", ".join(part for part in parts if part))


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of every paper that is linked to but not in the bibliography; title the others."""
    files = [Path(app.srcdir, name) for name in app.config.bibtex_bibfiles]
    for file in files:
        app.env.note_dependency(str(file))
    known = bibliography([file for file in files if file.is_file()])
    for link in doctree.findall(nodes.reference):
        name = paper(link.get("refuri", ""))
        if name is None:
            continue
        if name not in known:
            where = ", ".join(app.config.bibtex_bibfiles) or "the bibliography"
            LOGGER.warning(
                "%s is cited but not in %s: add an entry with its eprint, doi or url.",
                link["refuri"],
                where,
                location=link,
                type="portable",
                subtype="citation",
            )
        elif "reftitle" not in link:
            link["reftitle"] = known[name]
            link["classes"].append("vl-cite")


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", check)
