"""Slices of a chapter, the order in which records are made, and a run that has so much time and no more."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vitlab import cli, digest, plan, records, slices

CHAPTER = """
import importlib.util
if importlib.util.find_spec("nothing_of_the_kind") is None:
    STEPS = 1000
    folder = "somewhere"

# %%
import torch
from IPython.display import display
from vitlab import lab, show

lab.start()

STEPS = lab.choose(smoke=2, laptop=3, paper=4)
SIZES = [STEPS]
SIZES.append(7)
first = 1
second = first + 1
first = 10
torch.manual_seed(5)
noise = torch.rand(2)

raise_if_run = show.figure(1 / 0)

def helper(x):
    return x * STEPS + later

later = 100

def measure(seed, width=1):
    return {"value": helper(seed) + second + first + sum(SIZES), "noise": noise}

display(1 / 0)
result = lab.record("small", measure, seeds=2, rank=2, minutes=lab.choose(smoke=1, laptop=5, paper=60))

later = 0
show.figure(1 / 0)
"""

TRAINING = """
from pathlib import Path
from vitlab import lab

HERE = Path(__file__).parent

def train(name, steps):
    file = lab.checkpoint(name)
    done = int(file.read_text()) if file.exists() else 0
    while done < steps:
        if lab.time_is_up():
            file.write_text(str(done))
            raise lab.OutOfTime("The time is up.")
        done += 1
        with (HERE / "log.txt").open("a") as log:
            log.write(f"{done} ")
        if (HERE / "stop").exists() and done == 2:
            lab.os.environ["VITLAB_DEADLINE"] = "0"
    return done

def measure(seed):
    return {"value": train("first", 3) + seed}

lab.record("small", measure, seeds=3, minutes=2)
"""


@pytest.fixture
def chapters(tmp_path, monkeypatch):
    """Return a function that writes chapters; the command finds them, and their records stand apart."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(cli, "_NOTEBOOKS", folder)
    monkeypatch.chdir(tmp_path)  # the command changes folder and environment; both are put back afterwards
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_SCALE", "laptop")
    monkeypatch.setenv("VITLAB_DEADLINE", "inf")
    for name in ("VITLAB_RECORD", "MPLBACKEND"):
        monkeypatch.setenv(name, os.environ.get(name, ""))

    def write(**texts: str) -> list[Path]:
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
            digest._texts.pop(folder / f"{name}.py", None)  # another run
        return [folder / f"{name}.py" for name in texts]

    return write


def code_of(asked: slices.Asked) -> str:
    """Return the text of a slice."""
    return "\n".join(ast.unparse(asked.chapter.body[k]) for k in asked.needs)


def stored(name: str, seed: int = 0) -> tuple[dict[str, np.ndarray], dict]:
    return records.read(records.seed_file(name, "laptop", seed))


class TestSlice:
    def test_it_makes_what_the_whole_chapter_makes(self, chapters, tmp_path, monkeypatch):
        """The same numbers and the same fingerprint, without the figures; names mean what they mean there."""
        (file,) = chapters(small=CHAPTER)
        assert cli.main(["record", "small"]) == 0
        value, meta = stored("small")
        whole = tmp_path / "notebooks" / "small.py"
        whole.write_text(CHAPTER.replace("1 / 0", "1").replace("show.figure", "print"))
        digest._texts.pop(file)
        monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "other"))
        runpy.run_path(str(whole), run_name="__main__")
        again, other = stored("small")
        assert value["value"] == again["value"] == 100 + 2 + 10 + 3 + 7
        assert value["noise"].tolist() == again["noise"].tolist()
        assert meta["code"] == other["code"]
        assert meta["chapter"] == "notebooks/small.py"

    def test_it_leaves_figures_and_exercises_out(self, chapters):
        (asked,) = slices.Chapter(*chapters(small=CHAPTER)).asks
        text = code_of(asked)
        assert "1 / 0" not in text
        assert "nothing_of_the_kind" not in text
        assert "later = 100" in text and "later = 0" not in text
        assert (asked.seeds, asked.rank, asked.minutes, asked.config, asked.whole) == ((0, 1), 2, 5, {}, True)

    def test_the_fetching_cell_does_not_matter(self, chapters):
        (with_it,) = slices.Chapter(*chapters(small=CHAPTER)).asks
        without = CHAPTER[CHAPTER.index("# %%") :]
        (asked,) = slices.Chapter(*chapters(small=without)).asks
        assert code_of(asked) in code_of(with_it)
        assert asked.code == with_it.code

    def test_a_record_that_reads_another_brings_it_along(self, chapters):
        text = (
            "from vitlab import lab\n"
            "def one(seed): return {'v': seed}\ndef two(seed): return {'v': a['v'].sum()}\n"
            "a = lab.record('one', one, seeds=3)\nb = lab.record('two', two, seeds=1, rank=1)\n"
        )
        files = chapters(small=text)
        assert [one.name for one in plan.order(files)] == ["one", "two"]  # though two is the more telling
        assert cli.main(["record", "small"]) == 0
        assert stored("two")[0]["v"] == 3

    @pytest.mark.parametrize("name", ["vision_transformer"])
    def test_a_chapter_of_the_course(self, name, monkeypatch):
        """Its records are as its slices would make them, and no slice draws or shows."""
        monkeypatch.setenv("VITLAB_SCALE", "laptop")
        monkeypatch.delenv("VITLAB_RECORDS", raising=False)
        asks = slices.Chapter(Path(__file__).resolve().parents[1] / "notebooks" / f"{name}.py").asks
        assert [one.name for one in asks] == ["vit_training", "vit_pooled", "vit_geometry"]
        for one in asks:
            assert [seed.state for seed in plan.seeds(one)] == ["recorded"] * 4
            body = [one.chapter.body[k] for k in one.needs]
            text = "\n".join(ast.unparse(s) for s in body if not digest.only_imports(s))
            assert not any(word in text for word in ("display(", "show.", "check.", "git", "print("))


class TestWhatCannotBePlanned:
    @pytest.mark.parametrize(
        ("call", "says"),
        [
            ("lab.record(f'a{1}', m)", "line 3 of small.py cannot be planned; write its name as text"),
            ("lab.record('a', lambda seed: {})", "cannot be planned; write its name as text"),
            ("lab.record('a', m, seeds=count())", r"its seeds, count\(\), cannot be told without running"),
            ("lab.record('a', m, minutes=open('x'))", "its minutes, open"),
            ("lab.record('a', m, rank=0)", "A rank is a whole number from 1"),
            ("lab.record('a', m, seeds=[1, 1])", "A record needs at least one seed, each once"),
            ("a = = 1", "small.py is no Python at line 3"),
        ],
    )
    def test_it_is_said_in_a_sentence(self, chapters, capsys, call, says):
        chapters(small=f"from vitlab import lab\ndef m(seed): return {{'v': seed}}\n{call}\n")
        assert cli.main(["record", "small", "--dry-run"]) == 2
        err = capsys.readouterr().err
        assert re.search(says, err) and err.count("\n") == 1

    def test_a_configuration_is_told_as_far_as_possible(self, chapters):
        text = (
            "from vitlab import lab\nSTEPS = lab.choose(smoke=1, laptop=2 * 3, paper=9)\n"
            "def m(seed, **_): return {'v': seed}\ndef f(): return 1\nOTHER = f()\n"
            "lab.record('a', m, seeds=range(2), steps=STEPS, sizes=(1, STEPS))\n"
            "lab.record('b', m, seeds=[5, 2], steps=STEPS, other=OTHER)\n"
        )
        one, two = slices.Chapter(*chapters(small=text)).asks
        assert (one.config, one.whole) == ({"steps": 6, "sizes": [1, 6]}, True)
        assert (two.config, two.whole, two.seeds) == ({"steps": 6}, False, (2, 5))


class TestOrder:
    def test_the_most_telling_comes_first_then_as_it_stands(self, chapters):
        body = "from vitlab import lab\ndef m(seed): return {'v': seed}\n"
        a = body + "lab.record('a', m)\nlab.record('b', m, rank=2)\nlab.record('c', m, rank=1)\n"
        files = chapters(first=a, second=body + "lab.record('d', m, rank=1)\nlab.record('e', m)\n")
        assert [one.name for one in plan.order(files)] == ["c", "d", "b", "a", "e"]

    def test_all_chapters_are_made_where_none_is_named(self, chapters, capsys):
        body = "from vitlab import lab\ndef m(seed): return {'v': seed}\n"
        chapters(one=body + "lab.record('a', m, seeds=1)", two=body + "lab.record('b', m, seeds=2, rank=1)")
        assert cli.main(["record", "--scale", "laptop"]) == 0
        assert list(records.manifest()) == ["a/laptop/seed-000.npz", *(f"b/laptop/seed-00{k}.npz" for k in (0, 1))]
        capsys.readouterr()
        assert cli.main(["record"]) == 0
        assert capsys.readouterr().out == "b: 2 of 2 seeds are there\na: 1 of 1 seeds are there\n"


class TestOneRecord:
    BODY = "from vitlab import lab\ndef m(seed): return {'v': seed}\n"

    def three(self, chapters) -> None:
        ask = "lab.record('{}', m, seeds=2, rank={}, minutes=3)\n"
        chapters(first=self.BODY + ask.format("a", 1) + ask.format("b", 2), second=self.BODY + ask.format("c", 3))

    def test_it_alone_is_planned_and_made(self, chapters, capsys):
        self.three(chapters)
        command = ["record", "first", "--record", "b"]
        assert cli.main([*command, "--dry-run", "--budget=4m"]) == 0
        assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
            ["b", "0"],
            ["b", "1"],
            ["2", "seeds"],
        ]
        assert cli.main(command) == 0
        assert list(records.manifest()) == ["b/laptop/seed-000.npz", "b/laptop/seed-001.npz"]
        capsys.readouterr()
        assert cli.main(command) == 0
        assert capsys.readouterr().out == "b: 2 of 2 seeds are there\n"

    def test_it_is_found_in_all_chapters_and_damage_elsewhere_does_not_matter(self, chapters):
        self.three(chapters)
        assert cli.main(["record", "first"]) == 0
        records.seed_file("a", "laptop", 0).write_bytes(b"junk")
        assert cli.main(["record", "--record", "c"]) == 0
        assert stored("c", 1)[0]["v"] == 1
        assert cli.main(["record", "--record", "a"]) == 2

    def test_those_it_reads_come_before_it(self, chapters, capsys):
        text = (
            "lab.record('zero', m, seeds=1)\na = lab.record('one', m, seeds=1)\n"
            "def two(seed): return {'v': a['v'].sum()}\nb = lab.record('two', two, seeds=1)\n"
        )
        chapters(small=self.BODY + text)
        assert cli.main(["record", "small", "--record", "two", "--dry-run"]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["one", "two", "2"]
        assert cli.main(["record", "small", "--record", "two"]) == 0
        assert list(records.manifest()) == ["one/laptop/seed-000.npz", "two/laptop/seed-000.npz"]

    @pytest.mark.parametrize(
        ("chapter", "says"),
        [
            (["first"], "There is no record 'bb' in first; name one of a, b."),
            ([], "There is no record 'bb' in first and second; name one of a, b, c."),
        ],
    )
    def test_one_that_no_chapter_asks_for_is_refused_with_those_there_are(self, chapters, capsys, chapter, says):
        self.three(chapters)
        assert cli.main(["record", *chapter, "--record", "bb"]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", f"{says}\n")

    def test_a_budget_counts_its_seeds(self, chapters, tmp_path, capsys):
        chapters(small=TRAINING + "lab.record('other', measure, seeds=1, rank=1)\n")
        (tmp_path / "notebooks" / "stop").touch()
        assert cli.main(["record", "small", "--record", "small", "--budget", "10m"]) == 0
        assert "0 of 3 seeds are kept, seed 0 of small is kept at a checkpoint" in capsys.readouterr().out


class TestDryRun:
    def show(self, capsys, *options: str) -> list[str]:
        """Return the rows of the plan, and its last line."""
        capsys.readouterr()
        assert cli.main(["record", "small", "--dry-run", *options]) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]

    def test_it_lists_what_is_declared_and_what_fits(self, chapters, tmp_path, capsys):
        chapters(small=TRAINING)
        assert self.show(capsys, "--budget", "3m") == [
            "small 0 100 2 min declared missing 2 min yes",
            "small 1 100 2 min declared missing 4 min in part",
            "small 2 100 2 min declared missing 6 min no",
            "3 seeds to make at laptop scale, in 6 min.",
        ]
        assert not (tmp_path / "records").exists()

    def test_what_was_measured_counts_more_than_what_was_declared(self, chapters, capsys):
        chapters(small=CHAPTER.replace("seeds=2", "seeds=3"))
        assert cli.main(["record", "small"]) == 0
        for seed, seconds in ((0, 60.0), (1, 120.0)):
            values, meta = stored("small", seed)
            records.write(records.seed_file("small", "laptop", seed), values, meta | {"seconds": seconds})
        records.seed_file("small", "laptop", 2).unlink()
        assert self.show(capsys) == [
            "small 0 2 60 s it took recorded",
            "small 1 2 2 min it took recorded",
            "small 2 2 90 s as seed 0, 1 took missing 90 s",
            "1 seed to make at laptop scale, in 90 s.",
        ]

    def test_stale_damaged_and_unknown_are_told_apart(self, chapters, capsys):
        text = TRAINING.replace(", minutes=2", "").replace('train("first", 3)', "3")
        chapters(small=text)
        assert self.show(capsys, "--budget=1h") == [
            *(f"small {seed} 100 ? unknown missing unknown ?" for seed in range(3)),
            "3 seeds to make at laptop scale, in unknown.",
        ]
        assert cli.main(["record", "small"]) == 0
        chapters(small=text.replace("+ seed", "- seed"))
        records.seed_file("small", "laptop", 1).write_bytes(b"junk")
        rows = [row.replace("0.0 s", "").split() for row in self.show(capsys)[:3]]
        assert rows[0][-1] == rows[2][-1] == "stale"
        assert " ".join(rows[1]).endswith("damaged, delete it first")
        assert "as the older seed 0, 2 took" in " ".join(rows[0])
        assert cli.main(["record", "small"]) == 2
        told = capsys.readouterr().err
        assert "seed-001.npz: damaged" in told and told.count("\n") == 1

    def test_a_chapter_without_records_is_told(self, chapters, capsys):
        chapters(small="x = 1\n")
        assert cli.main(["record", "small", "--dry-run"]) == 2
        assert "asks for no record" in capsys.readouterr().err

    def test_another_configuration_makes_it_stale(self, chapters):
        text = (
            "from vitlab import lab\nW = {}\ndef m(seed, w): return {{'v': w}}\nlab.record('a', m, seeds=1, w=W)\n"
        )
        chapters(small=text.format(1))
        assert cli.main(["record", "small"]) == 0
        (asked,) = plan.order(chapters(small=text.format(2)))
        assert plan.seeds(asked)[0].state == "stale"
        assert cli.main(["record", "small"]) == 0
        assert stored("a")[0]["v"] == 2

    def test_it_does_not_need_torch(self, chapters):
        (file,) = chapters(small=CHAPTER)
        code = f"import sys; from vitlab import cli; cli.main(['record', {str(file)!r}, '--dry-run']); "
        done = subprocess.run(
            [sys.executable, "-c", code + "print('torch' in sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).resolve().parents[1],
        )
        assert done.stdout.splitlines()[-1] == "False"


class TestBudget:
    def test_a_run_out_of_time_says_what_is_kept_and_goes_on(self, chapters, tmp_path, capsys):
        """In two runs the same steps are done, and the same numbers come out, as in one."""
        chapters(small=TRAINING)
        stop = tmp_path / "notebooks" / "stop"
        stop.touch()
        assert cli.main(["record", "small", "--budget", "10m"]) == 0
        assert capsys.readouterr().out == (
            "The time is up: 0 of 3 seeds are kept, seed 0 of small is kept at a checkpoint; "
            "the same command goes on from there.\n"
        )
        assert cli.main(["record", "small", "--dry-run"]) == 0
        assert "begun, at a checkpoint after" in capsys.readouterr().out
        stop.unlink()
        os.environ["VITLAB_DEADLINE"] = "inf"
        assert cli.main(["record", "small"]) == 0
        assert (tmp_path / "notebooks" / "log.txt").read_text().split() == ["1", "2", "3"] * 3
        assert [stored("small", seed)[0]["value"] for seed in range(3)] == [3, 4, 5]
        assert not list(records.root().rglob("*.parts"))

    def test_nothing_is_begun_when_no_time_is_left(self, chapters, tmp_path, capsys):
        chapters(small=TRAINING)
        os.environ["VITLAB_DEADLINE"] = "0"
        assert cli.main(["record", "small"]) == 0
        assert "The time is up: 0 of 3 seeds are kept; the same" in capsys.readouterr().out
        assert not (tmp_path / "notebooks" / "log.txt").exists()

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("45s", 45), ("12m", 720), ("1h30m", 5400), ("2h", 7200), ("1h5s", 3605), ("1.5", 90), ("90", 5400)],
    )
    def test_a_span_of_time(self, text, seconds):
        assert plan.span(text) == seconds

    @pytest.mark.parametrize("text", ["", "soon", "0", "0m", "-3m", "12 x", "30m1h", "nan", "inf"])
    def test_what_is_no_time_is_refused_in_a_sentence(self, chapters, capsys, text):
        chapters(small=TRAINING)
        assert cli.main(["record", "small", f"--budget={text}"]) == 2
        err = capsys.readouterr().err
        assert err.startswith("A budget is a time such as 45s, 12m, 1h30m") and err.count("\n") == 1


class TestPath:
    def test_a_file_can_be_named(self, tmp_path, chapters, capsys):
        file = tmp_path / "elsewhere.py"
        file.write_text(TRAINING)
        assert cli.main(["record", str(file)]) == 0
        assert stored("small")[1]["chapter"] == ""
        assert json.loads((records.root() / "manifest.json").read_text())["small/laptop/seed-000.npz"]["bytes"] > 0
        assert cli.main(["record", str(tmp_path / "absent.py")]) == 2


def test_make_asks_for_a_chapter_a_record_a_budget_or_a_dry_run():
    """The command that make would run, without running it."""
    root = Path(__file__).resolve().parents[1]

    def command(*given: str) -> str:
        # Not as a part of the make that may be running these tests.
        alone = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            ["make", "-n", "record", *given], capture_output=True, text=True, cwd=root, check=True, env=alone
        )
        return " ".join(done.stdout.splitlines()[-1].split())

    assert command("CHAPTER=x", "SCALE=smoke").endswith("-m vitlab.lab record x --scale smoke")
    assert command("BUDGET=30m", "DRY=1").endswith("record --scale laptop --budget 30m --dry-run")
    one = command("CHAPTER=x", "RECORD=y", "SCALE=paper", "BUDGET=12m")
    assert one.endswith("record x --record y --scale paper --budget 12m")
