"""Check a built site as files: links, words for pictures, other hosts, and what a page weighs.

    python tools/check_site.py _build/html

Prints one line for each fault and exits with 1 if there is any. Links that lead out are not followed.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HEAVIEST = 1_500_000  # bytes over the wire before anything is scrolled to or clicked

# Attributes whose address the browser fetches by itself.
FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "video": ("src", "poster"),
}
FETCHED_RELATIONS = {
    "icon",
    "manifest",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
    "prefetch",
    "preload",
    "stylesheet",
}
CSS_ADDRESS = re.compile(r"""url\(\s*(["']?)(.*?)\1\s*\)|@import\s+(["'])(.*?)\3""")
CSS_IMPORT = re.compile(r"""@import\s+(?:url\()?\s*["']?([^"')]+)""")
SCRIPT_IMPORT = re.compile(r"""\bimport\s*\(?\s*(?:[\w*{}\s,]+\bfrom\s*)?["'](https?:)?//""")


@dataclass
class Page(HTMLParser):
    """What one HTML file links to, fetches and shows."""

    links: list[str] = field(default_factory=list)
    fetches: list[tuple[str, str, bool]] = field(default_factory=list)  # element, address, whether at once
    anchors: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._article = 0
        self._raw = ""  # "style" or "script" while inside one
        self._figures: list[dict[str, object]] = []
        self._caption = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self._raw = tag if tag in ("style", "script") else self._raw
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and set(given.get("rel", "").split()) & FETCHED_RELATIONS:
            self.fetches.append((tag, given.get("href", ""), True))
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.links.append(given.get("content", "").partition("url=")[2])
        for name in FETCHED.get(tag, ()):
            for address in _addresses(name, given.get(name, "")):
                self.fetches.append((tag, address, given.get("loading") != "lazy"))
        if "style" in given:
            self._style(given["style"])
        if tag == "article":
            self._article += 1
        if tag == "img":
            self._picture(given)
        if tag == "figure":
            self._figures.append({"ours": "vl-figure" in given.get("class", "").split(), "caption": ""})
        if tag == "figcaption":
            self._caption = True

    def handle_endtag(self, tag: str) -> None:
        if tag == self._raw:
            self._raw = ""
        if tag == "article":
            self._article -= 1
        if tag == "figcaption":
            self._caption = False
        if tag == "figure" and self._figures:
            figure = self._figures.pop()
            if figure["ours"] and not str(figure["caption"]).strip():
                self.faults.append("a figure has no caption")

    def handle_data(self, data: str) -> None:
        if self._caption and self._figures:
            self._figures[-1]["caption"] = f"{self._figures[-1]['caption']}{data}"
        if self._raw == "style":
            self._style(data)
        if self._raw == "script" and SCRIPT_IMPORT.search(data):
            self.faults.append("a script on the page imports from another host")

    def _style(self, css: str) -> None:
        self.fetches += [("style", address, False) for address in css_addresses(css)]

    def _picture(self, given: dict[str, str]) -> None:
        alt, source = given.get("alt"), given.get("src", "")[:80]
        # Outside the article an empty text marks an ornament, such as the logo beside the title.
        if alt is None or (self._article and not alt.strip()):
            self.faults.append(f"the image {source} has no alternative text")
        elif "_images/" in alt or (alt and alt == given.get("src")):
            self.faults.append(f"the image {source} has its own address as alternative text")


def _addresses(name: str, value: str) -> list[str]:
    if name != "srcset":
        return [value.strip()] if value.strip() else []
    return [part.split()[0] for part in value.split(",") if part.split()]


def css_addresses(css: str) -> list[str]:
    """Every address a style sheet names."""
    found = CSS_ADDRESS.findall(re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))
    return [address for _, url, _, imported in found if (address := (url or imported).strip())]


def leads_out(address: str) -> bool:
    """Whether an address names a host."""
    return bool(urlsplit(address).netloc)


@dataclass
class Site:
    """A folder of pages, each parsed once."""

    root: Path

    def __post_init__(self) -> None:
        files = sorted(self.root.rglob("*.html"))
        # The theme keeps templates beside its scripts.
        self.pages = {
            file: self._parse(file) for file in files if "_static" not in file.relative_to(self.root).parts
        }
        self.links = 0

    @staticmethod
    def _parse(file: Path) -> Page:
        page = Page()
        page.feed(file.read_text(encoding="utf-8"))
        page.close()
        return page

    def faults(self) -> list[str]:
        """One line for each fault, with the page it stands on."""
        found = []
        for file, page in self.pages.items():
            name = file.relative_to(self.root).as_posix()
            faults = [*page.faults, *self._broken(file, page), *self._foreign(page)]
            weight = self.weight(file)
            if weight > HEAVIEST:
                faults.append(f"it weighs {weight / 1e6:.2f} MB over the wire, more than {HEAVIEST / 1e6:.1f} MB")
            found += [f"{name}: {fault}" for fault in dict.fromkeys(faults)]
        for sheet in sorted(self.root.rglob("*.css")):
            name = sheet.relative_to(self.root).as_posix()
            for address in css_addresses(sheet.read_text(encoding="utf-8")):
                if leads_out(address):
                    found.append(f"{name}: it fetches {address} from another host")
        return found

    def _broken(self, file: Path, page: Page) -> list[str]:
        faults = []
        for address in [*page.links, *(address for element, address, _ in page.fetches if element != "style")]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            self.links += 1
            target = self._target(file, parts.path)
            anchor = unquote(parts.fragment)
            if not target.is_file():
                faults.append(f"the link {address} leads nowhere")
            elif anchor and target in self.pages and anchor not in self.pages[target].anchors:
                faults.append(f"the link {address} leads to an anchor that is not there")
        return faults

    @staticmethod
    def _foreign(page: Page) -> list[str]:
        return [
            f"{element} fetches {address} from another host"
            for element, address, _ in page.fetches
            if leads_out(address)
        ]

    def _target(self, file: Path, path: str) -> Path:
        if not path:
            return file
        base = self.root / path.lstrip("/") if path.startswith("/") else file.parent / path
        target = Path(unquote(str(base))).resolve()
        return target / "index.html" if target.is_dir() else target

    def weight(self, file: Path) -> int:
        """Bytes a page takes over the wire before anything is scrolled to: itself and what it fetches at once."""
        parts = {file}
        for _, address, at_once in self.pages[file].fetches:
            if at_once and not urlsplit(address).scheme and not leads_out(address):
                parts |= self._with_imports(self._target(file, urlsplit(address).path))
        return sum(compressed(part) for part in parts)

    def _with_imports(self, file: Path) -> set[Path]:
        if file.suffix != ".css" or not file.is_file():
            return {file} if file.is_file() else set()
        imports = CSS_IMPORT.findall(file.read_text(encoding="utf-8"))
        return {file}.union(
            *(self._with_imports((file.parent / name).resolve()) for name in imports if "//" not in name)
        )


@cache
def compressed(file: Path) -> int:
    """A file's size as a web server sends it."""
    content = file.read_bytes()
    text = file.suffix in (".html", ".css", ".js", ".json", ".svg")
    return len(gzip.compress(content, 6)) if text else len(content)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path, help="the folder of the built site, such as _build/html")
    root = parser.parse_args(arguments).site.resolve()
    if not (root / "index.html").is_file():
        print(f"{root} holds no index.html: build the book first (make book).", file=sys.stderr)
        return 2
    site = Site(root)
    faults = site.faults()
    for fault in faults:
        print(fault)
    heaviest = max(site.pages, key=site.weight)
    print(
        f"{len(site.pages)} pages, {site.links} links within, {len(faults)} faults; "
        f"the heaviest page is {heaviest.relative_to(root)} with {site.weight(heaviest) / 1e6:.2f} MB."
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
