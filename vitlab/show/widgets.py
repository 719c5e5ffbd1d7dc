"""Sliders over frames in plain HTML and script: they work in the book, in Colab and in Jupyter, and on a phone.

Where no kernel runs, the frames were drawn beforehand; that needs no server, no require.js and no other host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from matplotlib.figure import Figure

from vitlab.show import page
from vitlab.show.figures import SHEET, Pair, ShownFigure, check_words, figure, pair

Value = TypeVar("Value")
Alt = str | Callable[[Any], str]

_SHEET = (
    # The value stands beside the label, so that on a phone the slider has a line for itself.
    ".vl-control{display:flex;flex-wrap:wrap;align-items:center;gap:0 .6em;max-width:40em;margin-top:.5em}"
    ".vl-control label{display:contents}"
    ".vl-control output{min-width:4em;font-weight:600;font-variant-numeric:tabular-nums}"
    ".vl-control input{order:1;flex:1 1 16em;min-width:0;height:2.75rem;margin:0;cursor:pointer;"
    "accent-color:var(--pst-color-primary,var(--vl-a))}"
    ".vl-slider>div>[hidden]{display:none!important}"
)

# One script serves any number of sliders: whichever is not yet ready is made so. On the first touch the other
# frames of the look on display are fetched, so that moving does not flicker.
_SCRIPT = """(()=>{for(const f of document.querySelectorAll(".vl-slider:not([data-ready])")){
f.dataset.ready="";const r=f.querySelector("input"),o=f.querySelector("output"),
s=[...f.querySelectorAll(".vl-frame")];
const show=()=>{s.forEach((e,i)=>{e.hidden=i!=r.value});const t=s[r.value].dataset.value;o.value=t;
r.setAttribute("aria-valuetext",t)};
const fetch=()=>f.querySelectorAll(".vl-frame img").forEach(i=>{
if(getComputedStyle(i).display!="none")i.loading="eager"});
r.addEventListener("input",show);for(const e of["pointerenter","pointerdown","focus"])r.addEventListener(e,fetch);
r.disabled=false;show()}})()"""


class ShownSlider(page.Shown):
    """A slider over drawn frames, as a notebook shows it."""

    def __init__(self, pairs: Sequence[Pair], values: Sequence[str], label: str, caption: str) -> None:
        self.pairs, self.values = tuple(pairs), tuple(values)
        frames = "".join(
            f'<div class="vl-frame" data-value="{page.attribute(value)}"{" hidden" if place else ""}>'
            f"{two.imgs()}</div>"
            for place, (two, value) in enumerate(zip(pairs, values, strict=True))
        )
        first = page.attribute(values[0])
        control = (
            f'<div class="vl-control"><label><span>{page.inline(label)}</span>'
            f'<input type="range" min="0" max="{len(values) - 1}" step="1" value="0" aria-valuetext="{first}" '
            f'autocomplete="off" disabled></label><output aria-live="off">{first}</output></div>'
            f"<noscript><p>The slider needs JavaScript; without it the first frame, {first}, stands here."
            "</p></noscript>"
        )
        super().__init__(
            f"<style>{page.THEME}{SHEET}{_SHEET}</style>"
            f'<figure class="vl-figure vl-slider"><div class="vl-frames">{frames}</div>{control}'
            f"<figcaption>{page.inline(caption)}</figcaption></figure><script>{_SCRIPT}</script>",
            f"Slider over {page.plain(label)}, {values[0]} to {values[-1]}: {pairs[0].alt}",
        )


def slider(
    frames: Callable[[Figure, Any], object],
    values: Sequence[Any],
    *,
    label: str,
    alt: Alt,
    caption: str,
    size: tuple[float, float] = (7, 3.5),
    text: str | Callable[[Any], str] = "{value}",
) -> ShownSlider:
    """Draw `frames(fig, value)` for each of `values` and show them under a slider.

    `label` names what the slider changes; `text` is how a value reads beside it, and `alt` what can be seen in a
    frame: each a format string with {value} in it, or a function of the value. Give every frame the same axis
    limits, or the eye compares nothing. Each frame follows the rules of `show.figure`. Without JavaScript the
    first frame stands alone.

    Raises ValueError when there are fewer than two values, when alt text or value reads the same for two frames,
    and as `show.figure` does.
    """
    values = _several(values)
    page.sentence(label, "A slider's label")
    alts = [_said(alt, value, "alt text") for value in values]
    texts = [_said(text, value, "value") for value in values]
    for said, what in ((alts, "alt text"), (texts, "value")):
        if len(set(said)) < len(said):
            raise ValueError(
                f"Two frames have the same {what}: put {{value}} in it, or give a function of the value."
            )
    for one in alts:
        check_words(one, caption)
    pairs = [
        pair(lambda fig, value=value: frames(fig, value), alt=one, size=size)  # type: ignore[misc]
        for value, one in zip(values, alts, strict=True)
    ]
    return ShownSlider(pairs, texts, label, caption)


def interact(
    draw: Callable[[Figure, Any], object],
    values: Sequence[Any],
    *,
    label: str,
    alt: Alt,
    caption: str,
    size: tuple[float, float] = (7, 3.5),
    text: str | Callable[[Any], str] = "{value}",
) -> Any:
    """Redraw `draw(fig, value)` on a live kernel as the reader moves a slider; elsewhere give the static `slider`.

    On a live kernel a frame is drawn when it is asked for, so `values` may be many and drawing slow, and `draw`
    may use whatever the reader has changed since. A kernel counts as live unless the environment says
    VITLAB_STATIC=1, as the book's build does. The arguments, and the errors raised, are those of `slider`.
    """
    if not live():
        return slider(draw, values, label=label, alt=alt, caption=caption, size=size, text=text)
    import ipywidgets

    values = _several(values)
    control = ipywidgets.SelectionSlider(
        options=[(_said(text, value, "value"), place) for place, value in enumerate(values)],
        description=page.plain(page.sentence(label, "A slider's label")),
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "100%", "max_width": "40em"},
    )

    def redraw(place: int) -> ShownFigure:
        value = values[place]
        return figure(lambda fig: draw(fig, value), alt=_said(alt, value, "alt text"), caption=caption, size=size)

    return ipywidgets.interactive(redraw, place=control)


def live() -> bool:
    """Tell whether a kernel answers the page: a notebook front end, and no book being built."""
    if os.environ.get("VITLAB_STATIC", "0") not in ("", "0"):
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def _several(values: Sequence[Any]) -> list[Any]:
    """List the values of a slider; one alone is no choice."""
    values = list(values)
    if len(values) < 2:
        raise ValueError(f"A slider needs at least two values, not {len(values)}: use show.figure for one.")
    return values


def _said(how: str | Callable[[Any], str], value: Any, what: str) -> str:
    """Write a value by a format string or a function."""
    try:
        said = how(value) if callable(how) else how.format(value=value)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"The {what} of a frame, {how!r}, does not take the value {value!r}: {error}.") from None
    return page.finished(page.sentence(said, f"The {what} of a frame"))
