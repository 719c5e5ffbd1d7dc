"""Words and tables whose numbers come from records, and the verdict that closes a chapter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from vitlab.show import page

_TABLE_SHEET = (
    ".vl-table{overflow-x:auto;max-width:100%;margin:1.25em 0;container-type:inline-size}"
    ".vl-table table{border-collapse:collapse;margin:0;width:auto;font-size:.95em;"
    "font-variant-numeric:tabular-nums;border:0;color:inherit;background:none}"
    ".vl-table caption{caption-side:top;text-align:left;padding:0 0 .5em;color:inherit}"
    # No wider than the frame, so that the caption need not be scrolled.
    ".vl-table caption span{display:block;max-width:min(44em,100cqi)}"
    ".vl-table :is(th,td){padding:.4em .9em .4em 0;text-align:left;vertical-align:baseline;border:0;color:inherit;"
    "background:none}"
    ".vl-table :is(th,td).vl-number{text-align:right;white-space:nowrap}"
    ".vl-table thead th{font-weight:600;border-bottom:1.5px solid}"
    ".vl-table tbody th{font-weight:400}"
    ".vl-table tbody :is(th,td){border-bottom:1px solid #8884}"
)

_VERDICT_SHEET = (
    ".vl-verdict{margin:1.75em 0;max-width:44em;border-top:1.5px solid;border-bottom:1.5px solid;color:inherit}"
    ".vl-verdict dl{margin:0;display:grid;grid-template-columns:max-content 1fr}"
    ".vl-verdict :is(dt,dd){margin:0;padding:.65em 0;border-top:1px solid #8884}"
    ".vl-verdict dt{padding-right:1.5em;font-weight:600}"
    ".vl-verdict :is(dt,dd):nth-of-type(1){border-top:0}"
    ".vl-verdict .vl-word{font-weight:700}"
    ".vl-holds{color:var(--vl-y)}.vl-fails{color:var(--vl-n)}.vl-open{color:var(--vl-m)}"
    "@media(max-width:34em){.vl-verdict dl{grid-template-columns:1fr}"
    ".vl-verdict dd{border-top:0;padding-top:0}.vl-verdict dt{padding-bottom:.2em}}"
)

# Each verdict has a sign and a word of its own, so that colour is never all that tells them apart.
_VERDICTS = {
    "holds": ("✓", "The claim holds", "holds"),
    "holds in part": ("◐", "The claim holds in part", "open"),
    "undecided": ("?", "Undecided", "open"),
    "fails": ("✗", "The claim fails", "fails"),
}

# What stands for a number in a cell: 1,234.5, −3 %, 1.2e-05, 53.1 ± 0.4, 12.3 M, 4×.
_NUMERIC = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( ?± ?\d[\d,]*(\.\d+)?)?( ?[%×]| [kMGT]?[a-zA-Z]{0,2})?")


def say(text: str) -> Any:
    """Show a paragraph of Markdown whose numbers were filled in from records.

    Returns an IPython Markdown object. Raises ValueError when a number was left out: a brace, NaN, infinity, the
    repr of an array, or seven decimals and more.
    """
    from IPython.display import Markdown

    return Markdown(page.finished(page.sentence(text, "What show.say shows")))


def table(rows: Iterable[Sequence[Any]], header: Sequence[str], caption: str) -> page.Shown:
    """Show rows of cells under a header, the first cell of a row being its name, numbers flush right.

    Cells are text, which may hold inline Markdown, whole numbers, shown with commas, or other numbers, shown with
    three significant digits. A wide table scrolls within its own frame. Raises ValueError for a missing caption or
    name, rows of another length than the header, and numbers that are not finite.
    """
    page.sentence(caption, "A table's caption")
    names = [page.sentence(name, "Each name in a table's header") for name in header]
    cells = [[page.number(cell) for cell in row] for row in rows]
    if not names or not cells:
        raise ValueError("A table needs a header and at least one row.")
    for place, row in enumerate(cells):
        if len(row) != len(names):
            raise ValueError(f"Row {place} of the table has {len(row)} cells, but the header has {len(names)}.")
        page.sentence(row[0], f"The name of row {place}")
    right = [all(_NUMERIC.fullmatch(page.plain(row[k])) for row in cells) and k > 0 for k in range(len(names))]
    side = [' class="vl-number"' if flush else "" for flush in right]
    head = "".join(f'<th scope="col"{side[k]}>{page.inline(name)}</th>' for k, name in enumerate(names))
    body = "".join(
        f'<tr><th scope="row">{page.inline(row[0])}</th>'
        + "".join(f"<td{side[k]}>{page.inline(cell)}</td>" for k, cell in enumerate(row) if k)
        + "</tr>"
        for row in cells
    )
    html = (
        f"<style>{page.THEME}{_TABLE_SHEET}</style>"
        # A frame that scrolls must be reachable by keyboard, and then have a role and a name.
        f'<div class="vl-table" role="region" tabindex="0" aria-label="{page.attribute(page.plain(caption))}">'
        f"<table><caption><span>{page.inline(caption)}</span></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    ruled = ["---:" if flush else ":---" for flush in right]
    markdown = "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in (names, ruled, *cells)
    )
    return page.Shown(html, f"{caption}\n{markdown}", f"{caption}\n\n{markdown}")


def told(interval: Iterable[Any], digits: int = 1, plus: str = "+") -> str:
    """Write a mean, its low and its high end as `mean (low to high)`.

    Differences carry their signs; `plus=""` writes levels, without. ValueError for other than three numbers.
    """
    mean, low, high = (f"{float(x):{plus}.{digits}f}" for x in interval)
    return f"{mean} ({low} to {high})"


def verdict(*, claim: str, measured: str, verdict: str, would_change: str, source: str) -> page.Shown:
    """Close a question: what was claimed and by whom, what we measured, the verdict, what would change our mind.

    `verdict` is "holds", "holds in part", "undecided" or "fails"; the rest is inline Markdown, `source` usually a
    link to the paper. Raises ValueError for another verdict, a part left out, or a number left unfilled.
    """
    if verdict not in _VERDICTS:
        raise ValueError(f"A verdict is one of {', '.join(map(repr, _VERDICTS))}, not {verdict!r}.")
    sign, word, kind = _VERDICTS[verdict]
    for name, text in {
        "claim": claim,
        "measured": measured,
        "would_change": would_change,
        "source": source,
    }.items():
        page.finished(page.sentence(text, f"A verdict's {name}"))
    parts = (
        ("Claimed", f"{page.inline(claim)} ({page.inline(source)})"),
        ("Measured", page.inline(measured)),
        ("Verdict", f'<span class="vl-word vl-{kind}"><span aria-hidden="true">{sign}</span> {word}</span>'),
        ("Would change our mind", page.inline(would_change)),
    )
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in parts)
    markdown = "\n\n".join(
        f"**{name}.** {text}"
        for name, text in (
            ("Claimed", f"{claim} ({source})"),
            ("Measured", measured),
            ("Verdict", f"{sign} {word}."),
            ("Would change our mind", would_change),
        )
    )
    html = (
        f"<style>{page.THEME}{_VERDICT_SHEET}</style>"
        f'<div class="vl-verdict" data-verdict="{verdict}"><dl>{rows}</dl></div>'
    )
    return page.Shown(html, page.plain(markdown), markdown)
