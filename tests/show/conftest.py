"""Drawings that many tests share, and a strict reader of HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from vitlab import show

VOID = {"img", "input", "br", "meta", "link", "hr"}


def draw(fig: Any) -> None:
    """A small plot that follows the rules."""
    ax = fig.subplots()
    x = np.arange(1, 6)
    show.lines(ax, x, x**2.0, x**2.0 - 1, x**2.0 + 1, label="square")
    ax.set(xlabel="block", ylabel="distance (px)")


def frame(fig: Any, value: int) -> None:
    """A frame that differs with its value."""
    ax = fig.subplots()
    ax.plot([0, 1], [0, value])
    ax.set(xlabel="shift (px)", ylabel="error (1)", ylim=(0, 20))


WORDS = {"alt": "The distance rises as the square of the block.", "caption": "Distance by block."}


@pytest.fixture(scope="session")
def shown() -> Any:
    return show.figure(draw, size=(3, 2), **WORDS)


def slide(label: str = "patch side (px)", values: tuple[int, ...] = (2, 4, 8, 16)) -> Any:
    return show.slider(
        frame, values, label=label, alt="The error climbs to {value}.", caption="Error by shift.", size=(2, 1.5)
    )


@pytest.fixture(scope="session")
def slid() -> Any:
    return slide()


class Tree(HTMLParser):
    """Reads HTML strictly: every element closed where it should be; keeps tags with attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]
