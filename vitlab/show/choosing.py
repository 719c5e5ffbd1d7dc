"""A scatter chart whose reader chooses the quantity on each axis: in the book, in Colab, in Jupyter, on a phone.

The script draws the chart anew for every choice and every width; where no script runs, a picture of the first
choice stands in its place. A third of this file is that script, which needs no library and no other host.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from vitlab.show import page, style
from vitlab.show.figures import SHEET, Pair, check_words, pair
from vitlab.show.plots import array

_SHEET = (
    ".vl-choose [hidden]{display:none!important}"
    ".vl-plot svg{display:block;max-width:100%;height:auto;font-size:13px;font-variant-numeric:tabular-nums;"
    "color:inherit;background:none}"
    ".vl-plot text{fill:currentColor}.vl-plot p{margin:0;font-size:13px;line-height:1.35;color:inherit}"
    ".vl-plot p:first-of-type{margin-bottom:.4em}.vl-plot p:last-of-type{text-align:center}"
    ".vl-grid,.vl-leader{stroke:currentColor;stroke-opacity:.16}.vl-leader{stroke-opacity:.55}"
    ".vl-point circle,.vl-bar{fill:var(--vl-a);stroke:var(--vl-a);stroke-width:2}"
    ".vl-point .vl-hollow{fill:none}.vl-bar{fill:none;stroke-width:1.6;stroke-opacity:.6}"
    ".vl-axes{display:flex;flex-wrap:wrap;gap:.4em 1.5em;max-width:44em;margin-top:.6em}"
    ".vl-axes label{display:flex;align-items:center;gap:.6em;flex:1 1 17em;min-width:0;margin:0}"
    ".vl-axes span{min-width:3.2em}"
    # A phone zooms in on whatever it is to fill in that has smaller letters than these.
    ".vl-axes select{flex:1;min-width:0;min-height:max(2.75rem,44px);padding:0 .5em;font:inherit;font-size:16px;"
    "color:inherit;background:none;border:1px solid #8889;border-radius:6px;cursor:pointer}"
    # The list that opens has the browser's ground, light even where the page is dark.
    ".vl-axes option{color:#1f2328;background:#fff}.vl-axes option:disabled{color:#767676}"
    "@media print{.vl-axes{display:none}.vl-plot{color:#000;--vl-a:#1b72d8}}"
)

# One script serves any number of charts: whichever is not yet ready is made so.
#
# `scaled` finds the ends of an axis and its ticks: four to six in steps of 1, 2 or 5; on a logarithmic axis 1, 2
# and 5 of each decade, thinned to six, or the linear ones where that leaves fewer than three. `named` sets each
# name where it costs least: near its point, off other names and circles, and if it can be off bars and lines too.
_SCRIPT = r"""(()=>{
const say=v=>v.toLocaleString("en",{maximumSignificantDigits:3}).replace("-","−");
const nice=i=>Number([1,2,5][(i%3+3)%3]+"e"+Math.floor(i/3));
const scaled=({values,low,high,log})=>{
  const least=Math.min(...low||values),most=Math.max(...high||values);
  const on=log?Math.log:Number,off=log?Math.exp:Number;
  const pad=.07*(on(most)-on(least)||(log?1:Math.abs(most)||1));
  let lo=off(on(least)-pad),hi=off(on(most)+pad),ticks=[],written=say;
  if(!log&&least>=0)lo=Math.max(lo,0);
  if(log)for(let k=1;k==1||ticks.length>6;k+=k<3?1:3){
    ticks=[];
    for(let i=3*Math.floor(Math.log10(lo));nice(i)<=hi;i++)if(i%k==0&&nice(i)>=lo)ticks.push(nice(i));
  }
  if(ticks.length<3){
    let i=3*Math.floor(Math.log10(hi-lo))-3;
    while(Math.floor(hi/nice(i))-Math.ceil(lo/nice(i))>5)i++;
    const step=nice(i),digits=Math.max(0,-Math.floor(i/3));
    let first=Math.ceil(lo/step),last=Math.floor(hi/step);
    while(last-first<3){
      const floored=least>=0&&first-1<(log?1:0);
      if(floored||(last+1)*step-hi<=lo-(first-1)*step)last++;else first--;
    }
    lo=Math.min(lo,first*step);hi=Math.max(hi,last*step);
    ticks=[];for(let k=first;k<=last;k++)ticks.push(k*step);
    const form={minimumFractionDigits:digits,maximumFractionDigits:digits};
    written=v=>v.toLocaleString("en",form).replace("-","−");
  }
  return{ticks,written,share:v=>(on(v)-on(lo))/(on(hi)-on(lo))};
};
const meet=(a,b)=>a[0]<b[2]&&b[0]<a[2]&&a[1]<b[3]&&b[1]<a[3];
const ways=[[1,0],[-1,0],[0,-1],[0,1],[1,-1],[-1,-1],[1,1],[-1,1]];
const named=(points,sizes,bars,[left,top,right,bottom],r)=>{
  const hard=points.map(([x,y])=>[x-r-1,y-r-1,x+r+1,y+r+1]),soft=[...bars];
  return points.map(([x,y],own)=>{
    const [w,h]=sizes[own],others=hard.filter((_,i)=>i!=own);let best={cost:1/0};
    for(let gap=4;gap<110;gap+=6)ways.forEach(([a,b],way)=>{
      const d=(a&&b?.7:1)*(r+gap),cx=x+a*(d+w/2),cy=y+b*(d+h/2);
      const box=[cx-w/2,cy-h/2,cx+w/2,cy+h/2];
      if(box[0]<left||box[1]<top||box[2]>right||box[3]>bottom)return;
      const tip=[Math.min(Math.max(x,box[0]-2),box[2]+2),Math.min(Math.max(y,box[1]),box[3])];
      const far=Math.hypot(tip[0]-x,tip[1]-y),line=[];
      if(far>r+12)for(let s=r/far;s<1;s+=4/far){
        const [p,q]=[x+s*(tip[0]-x),y+s*(tip[1]-y)];line.push([p-1,q-1,p+1,q+1]);
      }
      const hit=(parts,boxes)=>boxes.filter(o=>parts.some(e=>meet(e,o))).length;
      const cost=gap+way/2+1e4*hit([box],others)+9*hit([box],soft)+40*hit(line,others)+(line.length?10:0);
      if(cost<best.cost)best={cost,box,line,tip};
    });
    if(!best.box)best={box:[left,top,left+w,top+h],line:[]};
    hard.push(best.box);soft.push(...best.line);
    const far=best.tip?Math.hypot(best.tip[0]-x,best.tip[1]-y):0;
    const edge=best.line.length?[x+(best.tip[0]-x)*r/far,y+(best.tip[1]-y)*r/far,...best.tip]:null;
    return{box:best.box,leader:edge};
  });
};
for(const f of document.querySelectorAll(".vl-choose:not([data-ready])")){
  f.dataset.ready="";
  const {names,hollow,axes}=JSON.parse(f.dataset.chart);
  const plot=f.querySelector(".vl-plot"),svg=plot.querySelector("svg");
  const [up,across]=plot.querySelectorAll("p"),selects=[...f.querySelectorAll("select")];
  const add=(parent,tag,given,text)=>{
    const made=document.createElementNS(svg.namespaceURI,tag);
    for(const key in given)made.setAttribute(key,given[key]);
    if(text!=null)made.textContent=text;
    return parent.appendChild(made);
  };
  let width=0,height=0,tall=0;
  const draw=()=>{
    const [ax,ay]=selects.map(s=>axes[s.value]);
    selects.forEach((s,k)=>[...s.options].forEach(o=>o.disabled=o.value==selects[1-k].value));
    width=plot.clientWidth;
    if(!width)return;
    // A scroll bar that comes and goes must not change the height, or it would do so for ever.
    if(Math.abs(width-tall)>24){tall=width;height=Math.round(Math.max(300,Math.min(440,.62*width)))}
    for(const e of plot.children)e.toggleAttribute("hidden",e.matches(".vl-still"));
    up.textContent=ay.label;across.textContent=ax.label;
    svg.replaceChildren();
    for(const[k,v]of[["width",width],["height",height],["viewBox",`0 0 ${width} ${height}`]])svg.setAttribute(k,v);
    svg.setAttribute("aria-label",`${ay.label} against ${ax.label}: `
      +names.map((n,i)=>`${n} ${say(ay.values[i])} at ${say(ax.values[i])}`).join("; "));
    const sx=scaled(ax),sy=scaled(ay),r=5.5;
    const marks=[sx,sy].map((s,k)=>s.ticks.map(v=>add(svg,"text",{class:k?"vl-y":"vl-x"},s.written(v))));
    const widest=marks.map(texts=>Math.max(...texts.map(t=>t.getComputedTextLength())));
    const left=widest[1]+9,right=width-Math.max(12,widest[0]/2),top=8,bottom=height-26;
    const px=v=>left+sx.share(v)*(right-left),py=v=>bottom-sy.share(v)*(bottom-top);
    const near=sx.ticks.some((v,i)=>i&&px(v)-px(sx.ticks[i-1])<widest[0]+8);
    sx.ticks.forEach((v,i)=>{
      add(svg,"path",{class:"vl-grid",d:`M${px(v)} ${top}V${bottom}`});
      const t=marks[0][i];t.setAttribute("x",px(v));t.setAttribute("y",bottom+19);
      t.setAttribute("text-anchor","middle");if(near&&i%2)t.remove();
    });
    sy.ticks.forEach((v,i)=>{
      add(svg,"path",{class:"vl-grid",d:`M${left} ${py(v)}H${right}`});
      const t=marks[1][i];t.setAttribute("x",left-7);t.setAttribute("y",py(v)+4.5);
      t.setAttribute("text-anchor","end");
    });
    const points=names.map((_,i)=>[px(ax.values[i]),py(ay.values[i])]),bars=[];
    const span=(a,i)=>say(a.values[i])+(a.low?` (${say(a.low[i])} to ${say(a.high[i])})`:"");
    const groups=names.map((n,i)=>{
      const g=add(svg,"g",{class:"vl-point"}),[x,y]=points[i];
      add(g,"title",{},`${n}: ${ay.label} ${span(ay,i)}, ${ax.label} ${span(ax,i)}`);
      // A bar begins at the circle's edge, so that a hollow one stays empty.
      const bar=(a,b,way)=>{
        if(Math.hypot(a-x,b-y)<=r)return;
        add(g,"path",{class:"vl-bar vl-"+way,d:way=="h"?`M${x+Math.sign(a-x)*r} ${y}H${a}`:
          `M${x} ${y+Math.sign(b-y)*r}V${b}`});
        bars.push([Math.min(a,x)-1,Math.min(b,y)-1,Math.max(a,x)+1,Math.max(b,y)+1]);
      };
      for(const end of["low","high"]){if(ax[end])bar(px(ax[end][i]),y,"h");if(ay[end])bar(x,py(ay[end][i]),"v")}
      add(g,"circle",{cx:x,cy:y,r:r-1,...hollow.includes(n)&&{class:"vl-hollow"}});
      return g;
    });
    const texts=groups.map((g,i)=>add(g,"text",{class:"vl-name"},names[i])),boxes=texts.map(t=>t.getBBox());
    named(points,boxes.map(b=>[b.width,b.height]),bars,[left+2,0,width,bottom-2],r).forEach(({box,leader},i)=>{
      texts[i].setAttribute("x",box[0]-boxes[i].x);texts[i].setAttribute("y",box[1]-boxes[i].y);
      if(leader){const [a,b,c,d]=leader;add(groups[i],"path",{class:"vl-leader",d:`M${a} ${b}L${c} ${d}`})}
    });
  };
  for(const s of selects){s.disabled=false;s.addEventListener("change",draw)}
  draw();
  new ResizeObserver(()=>requestAnimationFrame(()=>{if(plot.clientWidth!=width)draw()})).observe(plot);
}})()"""


@dataclass(frozen=True)
class Axis:
    """One quantity that every point has: its name with its unit, and a value a point.

    `low` and `high` are the ends of the values' intervals, both or neither; say in the caption what they are.
    """

    label: str
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    log: bool = False


class ShownChoice(page.Shown):
    """A scatter chart whose axes can be chosen, as a notebook shows it."""

    def __init__(
        self,
        still: Pair,
        points: Sequence[str],
        axes: Sequence[Axis],
        start: tuple[int, int],
        caption: str,
        hollow: Sequence[str],
    ) -> None:
        self.still, self.points, self.axes = still, tuple(points), tuple(axes)
        data = {"names": points, "hollow": hollow, "axes": [vars(axis) for axis in axes]}
        # Not `page.attribute`: two spaces in a name must stay two.
        chart = html.escape(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
        labels = [html.escape(axis.label) for axis in axes]
        controls = "".join(
            f'<label><span>{name}</span><select autocomplete="off" disabled>'
            + "".join(
                f'<option value="{place}"{" selected" if place == first else ""}>{label}</option>'
                for place, label in enumerate(labels)
            )
            + "</select></label>"
            for name, first in zip(("across", "up"), start, strict=True)
        )
        across, up = (labels[place] for place in start)
        super().__init__(
            f"<style>{page.THEME}{SHEET}{_SHEET}</style>"
            f'<figure class="vl-figure vl-choose" data-chart="{chart}">'
            f'<div class="vl-plot"><div class="vl-still">{still.imgs()}</div><p aria-hidden="true" hidden></p>'
            '<svg role="img" hidden></svg><p aria-hidden="true" hidden></p></div>'
            f'<div class="vl-axes">{controls}</div>'
            f"<noscript><p>Choosing the axes needs JavaScript; without it {up} against {across} stands here."
            f"</p></noscript><figcaption>{page.inline(caption)}</figcaption></figure><script>{_SCRIPT}</script>",
            f"Chart of {axes[start[1]].label} against {axes[start[0]].label}: {still.alt}",
        )


def choose(
    points: Sequence[str],
    axes: Sequence[Axis],
    *,
    start: tuple[str, str],
    alt: str,
    caption: str,
    hollow: Collection[str] = (),
) -> ShownChoice:
    """Show named points in a scatter chart whose reader chooses which of `axes` runs across and which runs up.

    `start` holds the labels of the axes chosen first, the one across before the one up; `alt` says what can be
    seen there. The points named in `hollow`, controls say, are drawn as empty circles. Without JavaScript the
    first choice stands alone, as a picture.

    Raises ValueError when there are fewer than two points or axes, when a name or label is empty or repeats, when
    `start` or `hollow` names what is not there, when an axis has not one finite number a point, an interval that
    does not hold its value, or on a logarithmic axis a number that is not positive, and when the alt text or the
    caption is missing or one repeats the other.
    """
    check_words(alt, caption)
    points, axes = list(points), list(axes)
    _distinct(points, "point", "name")
    _distinct([axis.label for axis in axes], "axis", "label")
    for name in hollow:
        _known(name, points, "hollow", "point")
    if len(start) != 2 or start[0] == start[1]:
        raise ValueError(f"A chart starts with two different axes, not with {start!r}: give two labels.")
    labels = [axis.label for axis in axes]
    places = tuple(labels.index(_known(label, labels, "start", "axis")) for label in start)
    axes = [_checked(axis, len(points)) for axis in axes]
    across, up = (axes[place] for place in places)
    still = pair(lambda fig: _draw(fig, points, across, up, hollow), alt=alt, size=(7, 4.3), trim=True)
    kept = [name for name in points if name in hollow]
    return ShownChoice(still, points, axes, (places[0], places[1]), caption, kept)


def _distinct(names: Sequence[str], what: str, called: str) -> None:
    """Raise ValueError unless there are two names or more, each a string of its own."""
    if len(names) < 2:
        raise ValueError(
            f"A chart needs at least two of each {what}, not {len(names)}: there is no choice in one."
        )
    for place, name in enumerate(names):
        page.sentence(name, f"The {called} of {what} {place}")
        if name in names[:place]:
            raise ValueError(f"The {called} {name!r} stands for more than one {what}: give each its own.")


def _known(name: str, names: Sequence[str], where: str, what: str) -> str:
    """Return a name that is one of `names`; raise ValueError otherwise."""
    if name not in names:
        raise ValueError(f"`{where}` names {name!r}, but no {what} is called so: use one of {', '.join(names)}.")
    return name


def _checked(axis: Axis, count: int) -> Axis:
    """Return the axis with plain floats, or raise ValueError when its numbers do not make a chart."""
    if (axis.low is None) != (axis.high is None):
        raise ValueError(f"The intervals of {axis.label!r} need both their ends: give low and high, or neither.")
    rows: dict[str, Any] = {}
    for part in ("values", "low", "high"):
        if (given := getattr(axis, part)) is None:
            continue
        row = rows[part] = array(given, f"The {part} of {axis.label!r}", 1).astype(float)
        if len(row) != count:
            raise ValueError(f"The {part} of {axis.label!r} are {len(row)} for {count} points: give one a point.")
        if axis.log and row.min() <= 0:
            raise ValueError(
                f"{axis.label!r} is logarithmic, but its {part} hold {row.min():.3g}: "
                "give positive numbers, or log=False."
            )
    if "low" in rows:
        # Ends computed another way than the value may differ in the last digit.
        slack = 1e-9 * (1 + np.abs(rows["values"]).max())
        if (rows["low"] > rows["values"] + slack).any() or (rows["high"] < rows["values"] - slack).any():
            raise ValueError(
                f"An interval of {axis.label!r} does not hold its value: low must not exceed it, nor it high."
            )
    return Axis(axis.label, log=axis.log, **{part: row.tolist() for part, row in rows.items()})


def _draw(fig: Figure, names: Sequence[str], across: Axis, up: Axis, hollow: Collection[str]) -> None:
    """Draw the picture of the first choice."""
    ax = fig.subplots()
    ax.grid(True)
    ax.margins(0.09)
    colour = style.look().colours[0]
    ax.set(xscale="log" if across.log else "linear", yscale="log" if up.log else "linear")
    for axis, one in ((ax.xaxis, across), (ax.yaxis, up)):
        axis.set_label_text(one.label, parse_math=False)
        if one.log:
            wide = max(one.values) > 100 * min(one.values)
            axis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
    ends = [
        None if one.low is None or one.high is None
        else np.abs(np.array([one.low, one.high]) - one.values)
        for one in (across, up)
    ]  # fmt: skip
    ax.errorbar(
        across.values, up.values, xerr=ends[0], yerr=ends[1], fmt="none", ecolor=colour, elinewidth=1.4, alpha=0.6
    )
    face = [style.look().ground if name in hollow else colour for name in names]
    ax.scatter(across.values, up.values, s=56, c=face, edgecolors=colour, linewidths=1.8, zorder=3)
    _set_names(fig, names, across, up, reach=4.0 * fig.dpi / 72)


def _set_names(fig: Figure, names: Sequence[str], across: Axis, up: Axis, reach: float) -> None:
    """Set names beside points of the radius `reach`: near, off circles and other names, off bars if it can be."""
    fig.draw_without_rendering()  # so that it is settled where the points lie; the names change that no more
    (ax,) = fig.axes

    def placed(x: Sequence[float], y: Sequence[float]) -> np.ndarray:
        return ax.transData.transform(np.column_stack([x, y]))

    spots = placed(across.values, up.values)
    taken = [Bbox.from_extents(*(spot - reach), *(spot + reach)) for spot in spots]
    bars: list[Bbox] = []
    if across.low is not None and across.high is not None:
        bars += map(Bbox, zip(placed(across.low, up.values) - 1, placed(across.high, up.values) + 1, strict=True))
    if up.low is not None and up.high is not None:
        bars += map(Bbox, zip(placed(across.values, up.low) - 1, placed(across.values, up.high) + 1, strict=True))
    for name, spot, value in zip(names, spots, zip(across.values, up.values, strict=True), strict=True):
        text = ax.annotate(
            name, value, (0, 0), textcoords="offset pixels", ha="center", va="center", parse_math=False, zorder=4
        )
        text.set_in_layout(False)
        extent = text.get_window_extent()
        half = np.array([extent.width, extent.height]) / 2
        best = (math.inf, spot, extent)
        for gap in range(9, 100, 8):
            for way in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
                centre = spot + np.array(way) * (half + reach + (gap if 0 in way else gap - 8))
                box = Bbox.from_extents(*(centre - half), *(centre + half))
                inside = (
                    ax.bbox.x0 < box.x0 and box.x1 < fig.bbox.x1 and ax.bbox.y0 < box.y0 < box.y1 < fig.bbox.y1
                )
                cost = gap + 900 * box.count_overlaps(taken) + 20 * box.count_overlaps(bars)
                if inside and cost < best[0]:
                    best = (cost, centre, box)
        text.set_position(best[1] - spot)
        taken.append(best[2])
