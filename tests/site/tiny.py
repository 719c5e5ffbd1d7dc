"""A tiny book with the real settings, extension and style: two pages, one chapter, a stand-in for the package."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]

TOC = """format: jb-book
root: book/preface
parts:
  - caption: Chapters
    chapters:
      - file: notebooks/chapter
      - file: book/glossary
"""

PREFACE = """# Preface

The preface of a tiny book, which says that hunger is measured. See [the chapter](../notebooks/chapter.ipynb), its
[second section](../notebooks/chapter.ipynb#a-second-section) and the [glossary](glossary.md#patch).
"""

GLOSSARY = """# Glossary

## Patch

A square of an image, after [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929).

| term | what it means | where it is measured | unit | symbol |
|---|---|---|---|---|
| effective rank | the exponential of the spectral entropy of a covariance | observatory | dimensions | $N$ |
| stable rank | the sum of the eigenvalues over the largest of them | observatory | dimensions | $r$ |

```{bibliography}
:all:
```
"""

REFERENCES = """@article{dosovitskiy2021,
  author = {Dosovitskiy, Alexey and Beyer, Lucas and Kolesnikov, Alexander},
  title = {An Image is Worth 16x16 Words},
  year = {2021},
  journal = {ICLR},
  eprint = {2010.11929},
  url = {https://arxiv.org/abs/2010.11929}
}
"""

INTRODUCTION = """# A chapter

What a chapter says first is its description. It cites
[Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929) and leads to the
[glossary](../book/glossary.md#patch).

> **Note.** A note in plain Markdown, with `code` and a [link](../book/preface.md).

> **Definition (equivariance).** A map $f$ is *equivariant* to a shift $T$ when $f(Tx) = T f(x)$.
>
> It has a second paragraph.

> **Warning.** Mind the **bold** words.

> **Claim.** The bottleneck is learned.

> **Try it.** Change the seed.

> **Seminar.** What would change your mind?

> An ordinary quotation stays one.

$$
\\mathrm{Attention}(Q, K, V) = \\mathrm{softmax}\\left(\\frac{Q K^\\top}{\\sqrt{d}}\\right) V \\tag{1.1}
$$

<details><summary>Solution</summary>

The answer is $42$, or `answer = 42`.

</details>

## A second section
"""


def picture(colour: str) -> str:
    """A small image as a data address."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 32), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def figure(alt: str = "A plain field", caption: str = "One colour in the light, another in the dark.") -> str:
    """A cell that shows a figure as vitlab.show does."""
    images = "".join(
        f'<img class="vl-{face}" alt="{alt}" src="{picture(colour)}">'
        for face, colour in (("light", "#e8e8e8"), ("dark", "#303030"))
    )
    style = "<style>.vl-dark,[data-theme=dark] .vl-light{display:none}[data-theme=dark] .vl-dark{display:block}"
    html = f'{style}</style><figure class="vl-figure">{images}<figcaption>{caption}</figcaption></figure>'
    return f"from IPython.display import HTML\nHTML({html!r})"


def markdown(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text, "id": f"m{abs(hash(text)) % 10**9}"}


def code(text: str, *tags: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)} if tags else {},
        "source": text,
        "outputs": [],
        "execution_count": None,
        "id": f"c{abs(hash(text)) % 10**9}",
    }


def notebook(*cells: dict[str, object]) -> str:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


class Book:
    """A tiny book in a folder: write pages into it, build it, read what came out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.html = root / "_build" / "html"
        shutil.copytree(
            ROOT / "book" / "_ext", root / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copytree(ROOT / "book" / "_static", root / "book" / "_static")
        shutil.copytree(ROOT / "book" / "_templates", root / "book" / "_templates")
        shutil.copyfile(ROOT / "_config.yml", root / "_config.yml")
        self.restore()

    def restore(self) -> None:
        """Put every source back to its sound state."""
        for place, text in {
            "_toc.yml": TOC,
            "book/preface.md": PREFACE,
            "book/glossary.md": GLOSSARY,
            "book/references.bib": REFERENCES,
            "vitlab/__init__.py": "NUMBER = 7\n",
            "data/readings.txt": "11",
        }.items():
            self.write(place, text)
        self.chapter()

    def write(self, place: str, text: str) -> None:
        """Write a file where its content differs, so that an unchanged one keeps its time."""
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

    def chapter(self, *extra: dict[str, object], text: str = INTRODUCTION) -> None:
        """Write the chapter, with further cells at its end."""
        self.write(
            "notebooks/chapter.ipynb",
            notebook(
                markdown(text),
                code(
                    "import time\nfrom pathlib import Path\n\nimport vitlab\n\n"
                    'reading = Path("../data/readings.txt").read_text()\n'
                    'print(f"number {vitlab.NUMBER}, reading {reading}, run at {time.time_ns()}")'
                ),
                code(figure(), "hide-input"),
                *extra,
            ),
        )

    def build(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the real builder on this book, by default strictly and at smoke scale."""
        known = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "BOOK_"))}
        return subprocess.run(
            [
                sys.executable,
                str(ROOT / "tools" / "build_book.py"),
                *("--source", str(self.root), "--scale", "smoke", "--strict"),
                *arguments,
            ],
            env=known | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def page(self, name: str) -> str:
        return (self.html / name).read_text(encoding="utf-8")
