"""Which records are made in which order, what is there of each, and how long the rest takes; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab import digest, lab, recording, records
from vitlab.manifest import combined
from vitlab.slices import Asked, Chapter

PLUMBING = True  # a change here cannot change a recorded number


@dataclass(frozen=True)
class Seed:
    """One seed of a record: what is there of it, and what it takes."""

    asked: Asked
    seed: int
    state: str  # recorded, stale, damaged, begun or missing
    seconds: float | None = None  # that making it took, where it is there
    spent: float = 0.0  # seconds that went into its checkpoints

    @property
    def file(self) -> Path:
        """Where it stands, or will."""
        return records.seed_file(self.asked.name, lab.scale(), self.seed)

    @property
    def there(self) -> bool:
        """Whether nothing is left to do."""
        return self.state == "recorded"


def order(chapters: Iterable[Path]) -> list[Asked]:
    """Return the records of these chapters, the most telling first, each after those it reads.

    Raises:
        ValueError: a chapter is no Python, or asks for a record in a way that cannot be planned.
    """
    asked = [one for file in chapters for one in Chapter(file).asks]
    ordered: list[Asked] = []

    def add(one: Asked) -> None:
        for other in asked:
            if other.chapter is one.chapter and other.position in one.needs[:-1]:
                add(other)
        if one not in ordered:
            ordered.append(one)

    for one in sorted(asked, key=lambda one: one.rank):  # those of one rank stay as they stand
        add(one)
    return ordered


def only(name: str, ordered: list[Asked]) -> list[Asked]:
    """Return of these the record of one name, and before it those it reads, which its slice makes too.

    Raises:
        ValueError: none has this name.
    """
    named = [one for one in ordered if one.name == name]
    if not named:
        known = ", ".join(dict.fromkeys(one.name for one in ordered))
        asking = " and ".join(dict.fromkeys(one.chapter.file.stem for one in ordered))
        raise ValueError(f"There is no record {name!r} in {asking}; name one of {known}.")
    return [
        one
        for one in ordered
        if any(one.chapter is other.chapter and one.position in other.needs for other in named)
    ]


def seeds(asked: Asked) -> list[Seed]:
    """Return what is there of each seed of a record at the scale of this run."""
    return [_seed(asked, seed) for seed in asked.seeds]


def _seed(asked: Asked, seed: int) -> Seed:
    file = records.seed_file(asked.name, lab.scale(), seed)
    begun = [recording.earlier(f)[0] for f in file.with_suffix(".parts").glob(f"{combined(asked.code)}-*")]
    seconds, state = None, "missing"
    if file.exists():
        try:
            meta = records.read(file)[1]
        except ValueError:
            state = "damaged"
        else:
            seconds = meta["seconds"]
            state = (
                "stale"
                if digest.changed(meta["code"], asked.code) or _differs(meta["config"], asked)
                else "recorded"
            )
    if any(begun) and state != "recorded":
        state = "begun"
    return Seed(asked, seed, state, seconds, max(begun, default=0.0))


def _differs(stored: dict[str, Any], asked: Asked) -> bool:
    """Whether a stored configuration is another than what the chapter's text tells of it."""
    if asked.whole:
        return stored != asked.config
    return any(stored.get(key, ...) != value for key, value in asked.config.items())


def minutes(some: list[Seed]) -> tuple[float | None, str]:
    """Return how long a seed of a record takes, and who says so: its other seeds, the chapter, or nobody."""
    one = some[0].asked
    for state, says in (("recorded", "as seed {} took"), ("stale", "as the older seed {} took")):
        done = [s for s in some if s.state == state and s.seconds is not None]
        if done:
            names = ", ".join(str(s.seed) for s in done)
            return sum(s.seconds or 0.0 for s in done) / len(done) / 60, says.format(names)
        if one.minutes is not None:
            return one.minutes, "declared"
    return None, "unknown"


def table(ordered: list[Asked], budget: float | None) -> str:
    """Return the plan as a table, a row a seed in the order of making, and what of it fits a budget in seconds."""
    rows = [["record", "seed", "rank", "takes", "", "state", "in all", "fits"]]
    total, sure, left = 0.0, True, 0  # seconds of all seeds to make, as far as they are known
    for one in ordered:
        found = seeds(one)
        each, says = minutes(found)
        for s in found:
            row = [one.name, str(s.seed), str(one.rank)]
            if s.there:
                rows.append([*row, records.duration(s.seconds or 0.0), "it took", s.state, "", ""])
                continue
            if s.state == "damaged":
                rows.append([*row, "", "", "damaged, delete it first", "", ""])
                continue
            before, sure, left = total, sure and each is not None, left + 1
            takes = max(0.0, 60 * each - s.spent) if each is not None else None
            total += takes or 0.0
            fits = _fits(before, total, sure, budget)
            state = f"begun, at a checkpoint after {records.duration(s.spent)}" if s.state == "begun" else s.state
            takes_text = "?" if takes is None else records.duration(takes)
            rows.append([*row, takes_text, says, state, _at_least(total, sure), fits])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(
        [*lines, f"{left} seed{'s' * (left != 1)} to make at {lab.scale()} scale, in {_at_least(total, sure)}."]
    )


def _at_least(seconds: float, sure: bool) -> str:
    """Return a sum of times in words, where some of them may be unknown."""
    if sure:
        return records.duration(seconds)
    return f"{records.duration(seconds)} and more" if seconds else "unknown"


def _fits(before: float, after: float, sure: bool, budget: float | None) -> str:
    """Return whether a seed is made within the budget, begun within it, or not reached."""
    if budget is None:
        return ""
    if before >= budget:
        return "no"
    return "?" if not sure else "yes" if after <= budget else "in part"


def span(text: str) -> float:
    """Return the seconds in `45s`, `12m`, `1h30m`, or in a plain number of minutes.

    Raises:
        ValueError: it is none of these, or no time at all.
    """
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text.strip())
    if re.fullmatch(number, text.strip()):
        seconds = 60 * float(text)
    else:
        h, m, s = (float(part or 0) for part in found.groups()) if found else (0.0, 0.0, 0.0)
        seconds = 3600 * h + 60 * m + s
    if not 0 < seconds < float("inf"):
        raise ValueError(f"A budget is a time such as 45s, 12m, 1h30m, or minutes as a number, got {text!r}.")
    return seconds
