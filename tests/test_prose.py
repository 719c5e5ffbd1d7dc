"""The prose pages: every citation has its entry, every link its target, every page one title."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from pybtex.database import BibliographyData, parse_file

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md")])
CHAPTERS = sorted((ROOT / "notebooks").glob("*.py"))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def bibliography() -> BibliographyData:
    return parse_file(ROOT / "book" / "references.bib", bib_format="bibtex")


def prose(path: Path) -> str:
    """A page's text without its code, where a bracket is no link and a hash no title."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def dead_links(text: str, folder: Path) -> list[str]:
    """The links to files that are not there; addresses and anchors are left to the tests of the built site."""
    targets = [unquote(target.partition("#")[0]) for target in LINK.findall(text)]
    return [t for t in targets if t and ":" not in t and not (folder / t).exists()]


def uncited(text: str, known: set[str]) -> list[str]:
    """The papers linked to, on arXiv or by DOI, that the bibliography does not have."""
    found = re.findall(r"https?://(?:arxiv\.org/abs|doi\.org)/[^\s)\]>\"']+", text)
    return [address for address in found if address not in known]


def addresses() -> set[str]:
    return {entry.fields["url"] for entry in bibliography().entries.values()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_one_title_and_live_links(page: Path) -> None:
    text = prose(page)
    assert len(re.findall(r"^# \S", text, flags=re.MULTILINE)) == 1
    assert text.lstrip().startswith("# ")
    assert dead_links(text, page.parent) == []


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS], ids=lambda page: page.name)
def test_every_paper_linked_to_is_in_the_bibliography(page: Path) -> None:
    assert uncited(page.read_text(encoding="utf-8"), addresses()) == []


def test_a_dead_link_and_an_unknown_paper_are_found() -> None:
    assert dead_links("See [here](read.md#verdict) and [there](nowhere.md).", ROOT / "book") == ["nowhere.md"]
    text = "[A](https://arxiv.org/abs/2010.11929) and [B](https://arxiv.org/abs/9999.99999)"
    assert uncited(text, addresses()) == ["https://arxiv.org/abs/9999.99999"]


def test_every_entry_can_be_found_by_its_reader() -> None:
    """Author, title, year and address each; the address is that of its arXiv number, or of its DOI."""
    for key, entry in bibliography().entries.items():
        fields = entry.fields
        assert entry.persons.get("author"), f"{key} has no author"
        assert {"title", "year", "url"} <= {name.lower() for name in fields}, f"{key} lacks title, year or url"
        if "eprint" in fields:
            assert fields["url"] == f"https://arxiv.org/abs/{fields['eprint']}", key
        elif "doi" in fields:
            assert fields["url"] == f"https://doi.org/{fields['doi']}", key


def test_no_paper_stands_twice() -> None:
    entries = bibliography().entries
    for field in ("eprint", "doi", "title"):
        values = [entry.fields[field].lower() for entry in entries.values() if field in entry.fields]
        assert len(values) == len(set(values)), field


def test_the_glossary_defines_each_term_once_and_in_order() -> None:
    text = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8")
    sections = [
        re.findall(r"^(\S.*)\n: \S", part, re.MULTILINE) for part in re.split(r"^## ", text, flags=re.M)[1:]
    ]
    terms = [term for section in sections for term in section]
    assert len(terms) == len(set(terms)) >= 40
    for section in sections:
        assert section == sorted(section, key=str.lower)


def test_the_ledger_has_the_columns_and_words_of_a_verdict() -> None:
    """Rows: an id, a chapter that exists, one of the four verdicts, and a scale."""
    text = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
    lines = text.partition("## Verdicts\n")[2].strip().splitlines()
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    assert table[0] == "| id | source | claim (in our words) | chapter | our verdict | scale, seeds |"
    for row in table[2:]:
        identity, _, _, chapter, verdict, scale = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert re.fullmatch(r"(IB|TGO|HUNGER|MAE|LIT)-\d+", identity), row
        assert LINK.search(chapter) and dead_links(chapter, ROOT / "book") == [], row
        assert re.match(r"(holds|holds in part|fails|undecided)\b", verdict.strip("*")), row
        assert re.match(r"(laptop|paper)\b", scale), row
