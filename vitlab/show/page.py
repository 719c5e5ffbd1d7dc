"""HTML that reads alike in the book, JupyterLab, Colab and VS Code, and carries its own few rules of style.

Every output must stand alone, because Colab shows each cell in a frame of its own: so each brings the small sheet
`THEME`, which finds out from the page around it whether light or dark is wanted.
"""

from __future__ import annotations

import html
import math
import numbers
import re
from collections.abc import Mapping

# Attributes by which a page says that it is light or dark. `data-content_root` alone marks the book without
# JavaScript, which is light; a page that says nothing follows the reader's system.
_LIGHT = (
    ":root[data-theme=light]",
    ":root[data-content_root]:not([data-theme])",
    ":root[theme=light]",
    "body[data-jp-theme-light=true]",
    "body[data-vscode-theme-kind$=light]",
)
_DARK = (
    ":root[data-theme=dark]",
    ":root[theme=dark]",
    "body[data-jp-theme-light=false]",
    "body[data-vscode-theme-kind$=dark]",
    "body[data-vscode-theme-kind$=contrast]",
)

# l, d: which picture is displayed. g: the ground behind it, opaque only where the page's own is unknown, so that
# a picture chosen by guess can still be read. a: accent. y, n, m: ink for yes, no and maybe, 4.5:1 or more.
_LIGHT_VARS = {
    "l": "block",
    "d": "none",
    "g": "#fff",
    "a": "#1b72d8",
    "y": "#006b3f",
    "n": "#a8200d",
    "m": "#7a5200",
}
_DARK_VARS = {
    "l": "none",
    "d": "block",
    "g": "#14181d",
    "a": "#3da5ff",
    "y": "#5fd39b",
    "n": "#ff9b8a",
    "m": "#eebf5b",
}


def _block(variables: Mapping[str, str]) -> str:
    return "{" + ";".join(f"--vl-{name}:{value}" for name, value in variables.items()) + "}"


def _theme() -> str:
    known = {"g": "none"}
    return "".join(
        (
            f":root{_block(_LIGHT_VARS)}",
            f"@media(prefers-color-scheme:dark){{:root{_block(_DARK_VARS)}}}",
            f"{','.join(_LIGHT)}{_block(_LIGHT_VARS | known)}",
            f"{','.join(_DARK)}{_block(_DARK_VARS | known)}",
            # On paper the page is white whatever the screen was.
            "@media print{:root,body{--vl-l:block!important;--vl-d:none!important}}",
            # The book's theme lays a light panel behind outputs in dark mode: ours are already dark.
            ".text_html:has(.vl-figure,.vl-table,.vl-verdict)"
            "{background:none!important;color:inherit!important;padding:0!important}",
        )
    )


THEME = _theme()


class Shown:
    """Something a notebook shows: HTML for pages, and plain text for a terminal or a screen without HTML."""

    def __init__(self, html: str, text: str, markdown: str | None = None) -> None:
        self.html, self.text, self.markdown = html, text, markdown

    def _repr_html_(self) -> str:
        return self.html

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle = {"text/html": self.html, "text/plain": self.text}
        return bundle if self.markdown is None else bundle | {"text/markdown": self.markdown}

    def __repr__(self) -> str:
        return self.text


_VERBATIM = re.compile(r"(`[^`]+`|\$\$.+?\$\$|\$[^$\s](?:[^$]*[^$\s])?\$)", re.DOTALL)
# The classes are those by which the book's MathJax knows what to typeset.
_MATH = '<span class="math notranslate nohighlight mathjax_process tex2jax_process">\\({}\\)</span>'
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def split_verbatim(text: str) -> list[str]:
    """Cut Markdown into prose (even places) and code or mathematics (odd places)."""
    return _VERBATIM.split(text)


def inline(text: str) -> str:
    """Turn one paragraph of Markdown into HTML: **bold**, *italic*, `code`, [links](to) and $mathematics$."""
    out = []
    for place, part in enumerate(split_verbatim(text)):
        part = html.escape(part, quote=False)
        if place % 2:
            out.append(f"<code>{part[1:-1]}</code>" if part.startswith("`") else _MATH.format(part.strip("$")))
            continue
        part = _LINK.sub(lambda m: '<a href="{}">{}</a>'.format(m[2].replace('"', "&quot;"), m[1]), part)
        part = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", part)
        out.append(re.sub(r"(?<!\w)\*(?!\s)(.+?)(?<!\s)\*(?!\w)", r"<em>\1</em>", part))
    return "".join(out)


def plain(text: str) -> str:
    """Drop Markdown's marks, for comparison and for places that take text alone."""
    return re.sub(r"[*`$]", "", _LINK.sub(r"\1", text)).strip()


def attribute(text: str) -> str:
    """Escape text for an HTML attribute between double quotes."""
    return html.escape(" ".join(text.split()))


def sentence(text: object, what: str) -> str:
    """Return text as it is, or say that `what` is missing.

    Raises ValueError when text is not a string, or holds nothing.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{what} must be a sentence, not {text!r}: write what a reader needs to know.")
    return text


_UNFINISHED = (
    (re.compile(r"[{}]"), "a brace"),
    (re.compile(r"(?<![\w-])[-+]?(?:nan|inf(?:inity)?)(?![\w-])", re.IGNORECASE), "a number that is not finite"),
    (re.compile(r"\b(?:array|tensor|float(?:16|32|64)|int64)\("), "an unformatted array"),
    (re.compile(r"\d\.\d{7,}"), "an unrounded number"),
)


def finished(text: str) -> str:
    """Return text when every number in it was filled in and rounded.

    Code and mathematics are left alone. Raises ValueError at a brace, NaN or infinity, an array's repr, or a
    number with seven decimals or more.
    """
    for part in split_verbatim(text)[::2]:
        for pattern, what in _UNFINISHED:
            if found := pattern.search(part):
                near = part[max(found.start() - 30, 0) : found.end() + 10].replace("\n", " ").strip()
                raise ValueError(f"The text holds {what} near {near!r}: fill in and round every number.")
    return text


def number(value: object) -> str:
    """Write one table cell: whole numbers with commas, others with three significant digits, text as it is.

    Raises ValueError when a number is NaN or infinite.
    """
    if isinstance(value, str):
        return finished(value)
    if isinstance(value, bool) or value is None:
        raise ValueError(f"A table cell must be a number or text, not {value!r}: write the word you mean.")
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    if not isinstance(value, numbers.Real):
        try:
            value = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(
                f"A table cell must be a number or text, not a {type(value).__name__}: format it first."
            ) from None
    size = abs(float(value))
    if not math.isfinite(size):
        raise ValueError(f"A table cell holds {value!r}: leave the row out or say in words why it is missing.")
    if size and not 1e-4 <= size < 1e6:
        return f"{float(value):.2e}"
    return f"{float(value):,.0f}" if size >= 999.5 else f"{float(value):#.3g}".rstrip(".")
