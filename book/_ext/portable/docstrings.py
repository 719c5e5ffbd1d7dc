"""Docstrings are written for whoever reads the file; the API page dresses them.

They are plain text with Markdown's backticks. A paragraph may be prose, a list, a table, indented code, a section
such as `Args:` with its entries indented, or two aligned columns:

    images  `(N, H, W, 3)` uint8
    labels  `(N,)` int64

Each becomes what it looks like. Whatever else stands in a docstring cannot break the page: it is escaped.
"""

from __future__ import annotations

import importlib
import re
import textwrap

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

CODE = re.compile(r"(?<!`)(`+)(?![`\s])([^`]+?)(?<!\s)\1(?!`)")
SECTION = re.compile(r"(Args|Attributes|Environment|Raises|Returns|Yields):$")
ENTRY = re.compile(r"(\S(?:[^:`]|`[^`]*`)*?): +(\S.*)$")
COLUMNS = re.compile(r"(\S+(?: \S+)*)  +(?=\S)")
BULLET = re.compile(r"(?:[-*]|\d+\.) +(?=\S)")


def dress(lines: list[str]) -> list[str]:
    """The reStructuredText of a docstring given as lines."""
    dressed: list[str] = []
    for paragraph in re.split(r"\n(?:[ ]*\n)+", "\n".join(lines).expandtabs().strip("\n")):
        dressed += [*_paragraph(paragraph.split("\n")), ""]
    return dressed


def _paragraph(lines: list[str]) -> list[str]:
    if all(line.startswith("    ") for line in lines):
        return [".. code-block:: python", "", *_indent(textwrap.dedent("\n".join(lines)).split("\n"))]
    if (section := SECTION.match(lines[0])) and len(lines) > 1:
        body = textwrap.dedent("\n".join(lines[1:])).split("\n")
        return [f":{section[1]}:", *_indent(_entries(body, ENTRY) or [_prose(" ".join(map(str.strip, body)))])]
    if len(lines) > 2 and all(line.startswith("|") for line in lines) and set(lines[1]) <= set("|-: "):
        return _table([lines[0], *lines[2:]])
    if entries := _entries(lines, COLUMNS):
        return entries
    if BULLET.match(lines[0]):
        return _bullets(lines)
    return [_prose(" ".join(line.strip() for line in lines))]


def _prose(text: str) -> str:
    """A line that cannot be taken for the start of a list, a field, a directive or a ruled title."""
    text = re.sub(r"^(\w+)(?=[.)](?:\s|$))", r"\1\\", _inline(text.strip()))
    return text if re.match(r"\w|``\S|$", text) else "\\ " + text


def _entries(lines: list[str], form: re.Pattern[str]) -> list[str]:
    """A definition list; no lines where the text has not the form of entries."""
    first = form.match(lines[0])
    if first is None:
        return []
    column = first.end()
    pairs: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and pairs:
            pairs[-1][1].append(line.strip())
        elif form is COLUMNS and len(line) > column and line[column - 1] == " " and line[column] != " ":
            pairs.append((line[:column].strip(), [line[column:]]))
        elif match := COLUMNS.match(line) if form is COLUMNS else None:
            pairs.append((match[1], [line[match.end() :]]))
        elif match := ENTRY.match(line):
            pairs.append((match[1], [match[2]]))
        else:
            return []
    dressed: list[str] = []
    for term, text in pairs:
        term = _inline(term) if "`" in term else f"``{term}``"
        dressed += [term, *_indent([_prose(" ".join(text))]), ""]
    return dressed


def _table(rows: list[str]) -> list[str]:
    dressed = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for number, cell in enumerate(row.strip().strip("|").split("|")):
            dressed.append(f"   {' ' if number else '*'} - {_prose(cell.strip())}")
    return dressed


def _bullets(lines: list[str]) -> list[str]:
    items: list[list[str]] = []
    for line in lines:
        if match := BULLET.match(line):
            items.append([match[0].strip(), line[match.end() :]])
        else:
            items[-1].append(line.strip())
    return [f"{'#.' if mark[0].isdigit() else '-'} {_prose(' '.join(text))}" for mark, *text in items]


def _inline(text: str) -> str:
    """One line of text: code in backticks stays code, and nothing else is markup."""
    parts: list[str] = []
    end = 0
    for match in CODE.finditer(text):
        parts.append(_escape(text[end : match.start()]))
        parts.append(f"\\ ``{match[2].strip()}``\\ ")
        end = match.end()
    return "".join([*parts, _escape(text[end:])]).removeprefix("\\ ").removesuffix("\\ ")


def _escape(text: str) -> str:
    return re.sub(r"[\\*|`_]|(?<=\w):(?=`)|(?<=:):", lambda found: "\\" + found[0], text)


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def dress_ours(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    if name.split(".")[0] == "vitlab":
        lines[:] = dress(lines)


def name_the_undocumented(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.TextElement | None:
    """What a signature names and the API page leaves out stands without a link; what is not there is a warning."""
    module, _, name = str(node.get("reftarget", "")).rpartition(".")
    if node.get("refdomain") != "py" or module.split(".")[0] != "vitlab":
        return None
    try:
        return content if hasattr(importlib.import_module(module), name) else None
    except ImportError:
        return None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", dress_ours)
    app.connect("missing-reference", name_the_undocumented)
