"""Scripts and icons come from installed packages, and only what the pages use is copied to the site.

MathJax is the `django-static-mathjax` package's. The theme draws its icons with a script of 1.5 MB that holds two
thousand of them; the site gets a style sheet with the two dozen it shows.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from sphinx.application import Sphinx

MATHJAX_PACKAGE = "django-static-mathjax"
# The typesetter, its fonts, the TeX extensions it fetches when a formula needs one, and what its menu offers to
# people who listen to formulas.
MATHJAX_FILES = re.compile(
    r"mathjax/static/mathjax/es5/"
    r"(tex-chtml\.js|output/chtml/fonts/.*|input/tex/extensions/.*|a11y/.*|sre/mathmaps/(base|en|nemeth)\.json)$"
)


def copy_mathjax(app: Sphinx) -> None:
    """Copy the MathJax files the pages may load into the site's static folder."""
    if app.builder.format != "html":
        return
    try:
        files = importlib.metadata.files(MATHJAX_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise RuntimeError(
            f"The package {MATHJAX_PACKAGE}, from which the book takes MathJax, is not installed: pip install it."
        ) from error
    target = Path(app.outdir, "_static", "mathjax")
    found = [(file, match) for file in files if (match := MATHJAX_FILES.search(file.as_posix()))]
    if not any(match[1] == "tex-chtml.js" for _, match in found):
        raise RuntimeError(f"The installed {MATHJAX_PACKAGE} holds no es5/tex-chtml.js: install version 3.2.")
    for file, match in found:
        copy = target / match[1]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), copy)


# name:[width,height,[aliases and code points],"code","path"] as the icon script lists them.
ICON = re.compile(r'"?([\w-]+)"?:\[(\d+),(\d+),\[([^\]]*)\],"[0-9a-f]+","([^"]+)"\]')
ICON_USE = re.compile(
    r"""<(?:i|span)\b[^>]*\bclass=["'][^"']*\b(?:fa[brs]?|fa-(?:solid|brands|regular))\b[^"']*["']"""
)
ICON_SIZES = {"fa-solid", "fa-brands", "fa-regular", "fa-lg", "fa-fw"}
ICON_SCRIPT = re.compile(r'\s*<script src="[^"]*scripts/fontawesome\.js[^"]*"></script>')


def draw_icons(app: Sphinx, exception: Exception | None) -> None:
    """Replace the theme's icon script by a style sheet that masks each icon the pages use."""
    script = Path(app.outdir, "_static", "scripts", "fontawesome.js")
    if exception is not None or app.builder.format != "html" or not script.is_file():
        return
    used: set[str] = set()
    for page in sorted(Path(app.outdir).rglob("*.html")):
        html = page.read_text(encoding="utf-8")
        for tag in ICON_USE.findall(html):
            used |= set(re.findall(r"\bfa-[\w-]+", tag)) - ICON_SIZES
        page.write_text(ICON_SCRIPT.sub("", html), encoding="utf-8")
    css = icon_rules({name.removeprefix("fa-") for name in used}, script.read_text(encoding="utf-8"))
    Path(app.outdir, "_static", "icons.css").write_text(css, encoding="utf-8")
    script.unlink()
    script.with_suffix(".js.map").unlink(missing_ok=True)


def icon_rules(names: set[str], script: str) -> str:
    """The style sheet's rules for some icons of the icon script; solid ones where there are several of a name."""
    drawings: dict[str, tuple[int, int, str]] = {}
    for name, width, height, others, path in ICON.findall(script):
        for alias in [name, *re.findall(r'"([^"]+)"', others)]:
            drawings[alias] = (int(width), int(height), path)
    if missing := sorted(names - drawings.keys()):
        raise RuntimeError(f"The theme's icon script has no icon named {', '.join(missing)}.")
    rules = []
    for name in sorted(names):
        width, height, path = drawings[name]
        picture = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'><path d='{path}'/></svg>"
        )
        rules.append(
            f".fa-{name}{{width:{width / height:.3f}em;"
            f'--vl-icon:url("data:image/svg+xml,{quote(picture, safe="/:=, ")}")}}'
        )
    return "/* Icons: Font Awesome Free, CC BY 4.0, fontawesome.com/license/free */\n" + "\n".join(rules) + "\n"


def setup(app: Sphinx) -> None:
    app.add_css_file("icons.css")
    app.connect("builder-inited", copy_mathjax)
    app.connect("build-finished", draw_icons)
