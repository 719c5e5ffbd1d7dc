"""The laboratory: scales, and records that survive interrupts, refuse damage and say when they are stale."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from vitlab import cli, digest, lab, recording, records

CHAPTER = '''
"""A chapter in small."""
from pathlib import Path
from vitlab import lab

STEPS = lab.choose(smoke=2, laptop=3, paper=4)

def helper(x):
    """Say what it does."""
    return x * STEPS

def measure(seed, width=1):
    with (Path(__file__).parent / "log.txt").open("a") as log:
        log.write(f"{seed}\\n")
    return {"value": helper(seed) * width, "curve": [seed, seed + 1.0]}
'''


@pytest.fixture
def write_chapter(tmp_path, monkeypatch):
    """Return a function that writes a chapter's text and imports it; its records stand apart."""
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_SCALE", "laptop")
    monkeypatch.delenv("VITLAB_RECORD", raising=False)
    folder = tmp_path / "notebooks"
    folder.mkdir()

    def write(text: str = CHAPTER) -> ModuleType:
        file = folder / "small.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("small_chapter", file)
        module = importlib.util.module_from_spec(spec)
        digest._texts.pop(file, None)  # another run
        monkeypatch.setitem(sys.modules, "small_chapter", module)
        spec.loader.exec_module(module)
        return module

    return write


def measured(tmp_path: Path) -> list[int]:
    """Return the seeds that were measured so far, in order."""
    log = tmp_path / "notebooks" / "log.txt"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


class TestScale:
    def test_choose_takes_the_branch_of_the_scale(self, monkeypatch):
        for scale, value in (("smoke", 1), ("laptop", 2), ("paper", 3)):
            monkeypatch.setenv("VITLAB_SCALE", scale)
            assert lab.choose(smoke=1, laptop=2, paper=3) == value

    def test_an_unknown_scale_is_refused_in_a_sentence(self, monkeypatch):
        monkeypatch.setenv("VITLAB_SCALE", "huge")
        with pytest.raises(ValueError, match=r"VITLAB_SCALE is one of smoke, laptop, paper, got 'huge'"):
            lab.scale()

    def test_start_seeds_everything_and_says_where_it_runs(self, capsys):
        import random

        import torch

        lab.start(seed=7)
        first = random.random(), np.random.rand(), torch.rand(1).item()
        lab.start(seed=7)
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
        assert "scale smoke | device" in capsys.readouterr().out

    def test_importing_vitlab_loads_nothing_heavy(self):
        code = "import sys, vitlab.lab; print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


class TestRecord:
    def test_it_computes_once_and_loads_after(self, write_chapter, tmp_path):
        chapter = write_chapter()
        first = lab.record("small", chapter.measure, seeds=3)
        again = lab.record("small", chapter.measure, seeds=3)
        assert measured(tmp_path) == [0, 1, 2]
        assert first["value"].tolist() == again["value"].tolist() == [0, 3, 6]
        assert again["curve"].shape == (3, 2)
        assert not again.stale

    def test_more_seeds_compute_only_the_new_ones(self, write_chapter, tmp_path):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        lab.record("small", chapter.measure, seeds=[0, 5])
        assert measured(tmp_path) == [0, 5]

    def test_an_interrupt_keeps_the_finished_seeds(self, write_chapter, tmp_path, capsys):
        stop = tmp_path / "stop"
        stop.touch()
        text = CHAPTER.replace(
            "    return {",
            f"    if seed == 1 and Path({str(stop)!r}).exists(): raise KeyboardInterrupt\n    return {{",
        )
        chapter = write_chapter(text)
        with pytest.raises(KeyboardInterrupt):
            lab.record("small", chapter.measure, seeds=3)
        assert "1 of the 3 seeds that were to make are kept" in capsys.readouterr().err
        stop.unlink()
        record = lab.record("small", chapter.measure, seeds=3)
        assert measured(tmp_path) == [0, 1, 1, 2]
        assert record["value"].tolist() == [0, 3, 6]

    def test_provenance_names_scale_seeds_cost_machine_versions_and_code(self, write_chapter):
        line = lab.record("small", write_chapter().measure, seeds=2).provenance
        for part in ("scale laptop", "2 seeds (0, 1)", "torch 2", "python 3", "code "):
            assert part in line
        assert "<p class=" in lab.record("small", sys.modules["small_chapter"].measure, seeds=2)._repr_html_()

    @pytest.mark.parametrize(
        ("old", "new", "names"),
        [
            ("return x * STEPS", "return x + STEPS", ("helper",)),
            ("laptop=3", "laptop=30", ("STEPS",)),
            ("[seed, seed + 1.0]", "[seed, seed + 2.0]", ("measure",)),
        ],
    )
    def test_a_change_of_code_makes_it_stale_and_names_what_changed(self, write_chapter, old, new, names):
        lab.record("small", write_chapter().measure, seeds=2)
        record = lab.record("small", write_chapter(CHAPTER.replace(old, new)).measure, seeds=2)
        assert record.stale == names
        assert f"Stale: {names[0]} changed since" in record.provenance

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("return x * STEPS", "return (x *\n        STEPS)  # a comment"),
            ("Say what it does.", "Say it otherwise."),
            ("smoke=2", "smoke=20"),
            ("def helper", "UNUSED = 1\n\ndef helper"),
        ],
    )
    def test_comments_formatting_docstrings_and_other_scales_do_not(self, write_chapter, old, new):
        lab.record("small", write_chapter().measure, seeds=2)
        assert old in CHAPTER
        assert not lab.record("small", write_chapter(CHAPTER.replace(old, new)).measure, seeds=2).stale

    def test_a_change_of_configuration_makes_it_stale(self, write_chapter):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1, width=2)
        assert lab.record("small", chapter.measure, seeds=1, width=3).stale == ("width",)
        assert not lab.record("small", chapter.measure, seeds=1, width=2).stale

    def test_load_mode_raises_for_missing_and_for_stale(self, write_chapter, monkeypatch):
        monkeypatch.setenv("VITLAB_RECORD", "load")
        with pytest.raises(
            records.MissingRecord, match=r"Seeds \[0, 1\] of small are not recorded at laptop scale"
        ):
            lab.record("small", write_chapter().measure, seeds=2)
        monkeypatch.setenv("VITLAB_RECORD", "auto")
        lab.record("small", write_chapter().measure, seeds=2)
        monkeypatch.setenv("VITLAB_RECORD", "load")
        with pytest.raises(records.StaleRecord, match=r"stale: helper changed since"):
            lab.record("small", write_chapter(CHAPTER.replace("x * STEPS", "x + STEPS")).measure, seeds=2)

    def test_compute_mode_makes_stale_seeds_anew(self, write_chapter, monkeypatch):
        lab.record("small", write_chapter().measure, seeds=2)
        monkeypatch.setenv("VITLAB_RECORD", "compute")
        record = lab.record("small", write_chapter(CHAPTER.replace("x * STEPS", "x - 1")).measure, seeds=2)
        assert record["value"].tolist() == [-1, 0]
        assert not record.stale

    def test_smoke_records_are_made_anew_when_stale_and_never_listed(self, write_chapter, monkeypatch):
        monkeypatch.setenv("VITLAB_SCALE", "smoke")
        lab.record("small", write_chapter().measure, seeds=2)
        record = lab.record("small", write_chapter(CHAPTER.replace("x * STEPS", "x - 1")).measure, seeds=2)
        assert record["value"].tolist() == [-1, 0]
        assert records.manifest() == {}

    def test_two_processes_share_the_seeds(self, write_chapter, tmp_path):
        write_chapter(CHAPTER.replace("    with (Path", "    import time; time.sleep(0.3)\n    with (Path"))
        script = tmp_path / "notebooks" / "small.py"
        script.write_text(script.read_text() + "\nlab.record('small', measure, seeds=4)\n")
        both = [subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL) for _ in range(2)]
        assert [p.wait(timeout=120) for p in both] == [0, 0]
        assert sorted(measured(tmp_path)) == [0, 1, 2, 3]
        assert len(records.manifest()) == 4

    def test_a_killed_process_loses_at_most_the_seed_it_was_at(self, write_chapter, tmp_path):
        write_chapter(CHAPTER.replace("    return {", "    import time; time.sleep(0.5)\n    return {"))
        script = tmp_path / "notebooks" / "small.py"
        script.write_text(script.read_text() + "\nlab.record('small', measure, seeds=4)\n")
        process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
        while len(measured(tmp_path)) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = sorted((tmp_path / "records" / "small" / "laptop").glob("seed-*.npz"))
        assert [f.name for f in kept] == ["seed-000.npz", "seed-001.npz"]
        subprocess.run([sys.executable, str(script)], check=True, stderr=subprocess.DEVNULL)
        assert measured(tmp_path) == [0, 1, 2, 2, 3]


class TestSharedFolder:
    """What one run does must not undo, vouch for or overlook what another did."""

    def test_an_interrupted_refresh_goes_on(self, write_chapter, tmp_path, monkeypatch):
        """The manifest follows each seed, so the half that is new is not taken for forged."""
        lab.record("small", write_chapter().measure, seeds=2)
        stop = tmp_path / "stop"
        stop.touch()
        changed = CHAPTER.replace("x * STEPS", "x + STEPS").replace(
            "    return {",
            f"    if seed == 1 and Path({str(stop)!r}).exists(): raise KeyboardInterrupt\n    return {{",
        )
        monkeypatch.setenv("VITLAB_RECORD", "compute")
        with pytest.raises(KeyboardInterrupt):
            lab.record("small", write_chapter(changed).measure, seeds=2)
        stop.unlink()
        assert lab.record("small", sys.modules["small_chapter"].measure, seeds=2)["value"].tolist() == [3, 4]
        assert measured(tmp_path) == [0, 1, 0, 1, 1]

    def test_code_edited_while_a_run_goes_on_gets_no_credit(self, write_chapter, tmp_path):
        """The second record of the first run was made by the code that run began with."""
        write_chapter()
        script = tmp_path / "notebooks" / "small.py"
        script.write_text(
            CHAPTER.replace("STEPS = lab", "lab.start()\nSTEPS = lab")
            + "\nlab.record('one', measure, seeds=1)\n"
            + "text = Path(__file__).read_text()\n"
            + "Path(__file__).write_text(text.replace('x * STEPS', 'x + STEPS'))\n"
            + "print(lab.record('two', measure, seeds=1).stale)\n"
        )
        run = [
            subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        ]
        assert [out.splitlines()[-1] for out in run] == ["()", "('helper',)"]

    def test_recording_one_thing_vouches_for_no_other(self, write_chapter):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        file = records.seed_file("small", "laptop", 0)
        file.write_bytes(b"junk")
        assert lab.record("other", chapter.measure, seeds=1)["value"].tolist() == [0]
        with pytest.raises(ValueError, match="is not the file that data/manifest"):
            lab.record("small", chapter.measure, seeds=1)

    def test_a_seed_made_meanwhile_from_another_configuration_is_not_taken(self, write_chapter, tmp_path):
        write_chapter(CHAPTER.replace("    with (Path", "    import time; time.sleep(0.5)\n    with (Path"))
        script = tmp_path / "notebooks" / "small.py"
        script.write_text(
            script.read_text()
            + "\nimport sys\nr = lab.record('small', measure, seeds=[1], width=int(sys.argv[1]))\n"
            + "print(int(r['value'][0]), *r.stale)\n"
        )
        both = [
            subprocess.Popen(
                [sys.executable, str(script), width], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            for width in "12"
        ]
        assert sorted(process.communicate(timeout=120)[0].split() for process in both) == [["3"], ["6"]]

    @pytest.mark.parametrize("text", ["<<<<<<< HEAD", "[]", "null", '{"a": {}}'])
    def test_a_damaged_manifest_is_one_sentence(self, write_chapter, text):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        (records.root() / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=r"manifest.json beside the records is damaged"):
            lab.record("small", chapter.measure, seeds=1)
        assert cli.check() == [
            "manifest.json beside the records is damaged; restore it with git or run make manifest."
        ]
        assert list(records.update_manifest()) == ["small/laptop/seed-000.npz"]

    def test_a_linked_folder_serves(self, write_chapter, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "records").mkdir()
        (tmp_path / "records" / "small").symlink_to(tmp_path / "elsewhere")
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        assert not lab.record("small", chapter.measure, seeds=1).stale
        assert list(records.manifest()) == ["small/laptop/seed-000.npz"]

    def test_a_folder_that_cannot_be_written_is_one_sentence(self, write_chapter, monkeypatch):
        monkeypatch.setenv("VITLAB_RECORDS", "/dev/null/records")
        with pytest.raises(
            OSError, match=r"could not be written to /dev/null/records/small/laptop .* set VITLAB_RECORDS"
        ):
            lab.record("small", write_chapter().measure, seeds=1)


TRAINING = """
from pathlib import Path
from vitlab import lab

def train(name, steps):
    file = lab.checkpoint(name)
    done = int(file.read_text()) if file and file.exists() else 0
    while done < steps:
        if lab.time_is_up():
            if file:
                file.write_text(str(done))
            raise lab.OutOfTime("The time is up.")
        done += 1
        with (Path(__file__).parent / "log.txt").open("a") as log:
            log.write(f"{done}\\n")
        if (Path(__file__).parent / "stop").exists() and done == 2:
            lab.os.environ["VITLAB_DEADLINE"] = "0"
    return done

def measure(seed, steps=4):
    return {"value": train("first", steps) + seed}
"""


class TestCheckpoints:
    @pytest.fixture
    def stopped(self, write_chapter, tmp_path, monkeypatch):
        """A chapter whose record of two seeds ran out of time at the second step of the first."""
        monkeypatch.setenv("VITLAB_DEADLINE", "inf")
        chapter = write_chapter(TRAINING)
        (tmp_path / "notebooks" / "stop").touch()
        with pytest.raises(lab.OutOfTime):
            lab.record("small", chapter.measure, seeds=2)
        (tmp_path / "notebooks" / "stop").unlink()
        monkeypatch.setenv("VITLAB_DEADLINE", "inf")
        return chapter

    def parts(self) -> list[str]:
        return sorted(file.name for file in records.root().glob("small/laptop/*.parts/*/*"))

    def test_a_run_out_of_time_goes_on_where_it_stopped(self, stopped, tmp_path):
        assert self.parts() == ["first.safetensors", "sitting.json"]
        assert lab.record("small", stopped.measure, seeds=2)["value"].tolist() == [4, 5]
        assert measured(tmp_path) == [1, 2, 3, 4, 1, 2, 3, 4]
        assert not list(records.root().glob("small/laptop/*.parts"))

    @pytest.mark.parametrize("other", ["code", "configuration"])
    def test_what_other_code_began_is_deleted_and_not_continued(self, stopped, write_chapter, tmp_path, other):
        chapter = write_chapter(TRAINING.replace("+ seed", "- seed")) if other == "code" else stopped
        lab.record("small", chapter.measure, seeds=1, **({"steps": 3} if other == "configuration" else {}))
        assert measured(tmp_path)[:5] == [1, 2, 1, 2, 3]
        assert not list(records.root().glob("small/laptop/*.parts"))

    def test_the_lock_is_free_after_the_time_is_up(self, stopped):
        from filelock import FileLock

        with FileLock(records.seed_file("small", "laptop", 0).with_suffix(".lock"), timeout=0):
            pass

    def test_the_time_of_earlier_sittings_counts(self, stopped):
        note = next(records.root().glob("small/laptop/*.parts/*/sitting.json"))
        listed = json.loads(note.read_text())
        note.write_text(json.dumps(listed | {"began": listed["began"] - 1000, "hardware": ["An abacus"]}))
        meta = lab.record("small", stopped.measure, seeds=1).meta[0]
        assert 1000 <= meta["seconds"] < 1010
        assert meta["hardware"].startswith("An abacus; ")

    def test_no_seed_is_begun_when_the_time_is_up(self, write_chapter, tmp_path, monkeypatch):
        monkeypatch.setenv("VITLAB_DEADLINE", "0")
        with pytest.raises(
            lab.OutOfTime, match="The time is up; 0 of the 2 seeds of small that were to make are kept"
        ):
            lab.record("small", write_chapter().measure, seeds=2)
        assert measured(tmp_path) == []

    def test_outside_a_measurement_nothing_is_kept(self):
        assert lab.checkpoint("first") is None

    @pytest.mark.parametrize("name", ["../first", "a/b", "", ".", "..", ".first", "a b", "ä", "a" * 101, None, 3])
    def test_a_name_that_leaves_the_folder_is_refused(self, name):
        with pytest.raises(ValueError, match=r"A checkpoint's name is up to 100 letters"):
            lab.checkpoint(name)

    def test_two_pieces_of_one_name_are_told(self, write_chapter):
        twice = TRAINING.replace("lab.checkpoint(name)", "lab.checkpoint(name) and lab.checkpoint(name)")
        with pytest.raises(ValueError, match="Two pieces of this measurement are called 'first'"):
            lab.record("small", write_chapter(twice).measure, seeds=1)

    @pytest.mark.parametrize("rest", ["", "[]", '{"before": 1}', '{"before": "x", "began": 0, "hardware": []}'])
    def test_a_damaged_note_of_the_time_spent_stops_nothing(self, tmp_path, rest):
        (tmp_path / "a.safetensors").touch()
        (tmp_path / "sitting.json").write_text(rest)
        assert recording.earlier(tmp_path) == (0.0, ())

    def test_a_folder_that_cannot_be_made_is_one_sentence(self, write_chapter):
        parts = records.seed_file("small", "laptop", 0).with_suffix(".parts")
        parts.parent.mkdir(parents=True)
        parts.touch()
        with pytest.raises(
            OSError, match=r"The checkpoint first could not be written to .*\.parts.*free some space"
        ):
            lab.record("small", write_chapter(TRAINING).measure, seeds=1)

    def test_a_full_disk_is_one_sentence(self, write_chapter, monkeypatch):
        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        chapter = write_chapter(TRAINING)
        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=r"The checkpoint first could not be .*No space left on device"):
            lab.record("small", chapter.measure, seeds=1)

    def test_a_deadline_that_is_no_time_is_refused(self, monkeypatch):
        monkeypatch.setenv("VITLAB_DEADLINE", "noon")
        with pytest.raises(ValueError, match="VITLAB_DEADLINE is a time in Unix seconds, got 'noon'"):
            lab.time_is_up()

    def test_rests_of_a_killed_write_are_deleted(self, write_chapter):
        rest = records.seed_file("small", "laptop", 0).with_suffix(".123.part")
        rest.parent.mkdir(parents=True)
        rest.touch()
        lab.record("small", write_chapter().measure, seeds=1)
        assert not rest.exists()


class TestPlanned:
    def test_rank_and_minutes_are_no_configuration(self, write_chapter):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        again = lab.record("small", chapter.measure, seeds=1, rank=1, minutes=2.5)
        assert not again.stale
        assert again.meta[0]["config"] == {}

    @pytest.mark.parametrize(
        ("plan", "says"),
        [({"rank": 0}, "A rank is"), ({"rank": 1.5}, "A rank is"), ({"minutes": -1}, "The minutes a seed takes")],
    )
    def test_what_no_plan_can_be_made_with_is_refused(self, write_chapter, plan, says):
        with pytest.raises(ValueError, match=says):
            lab.record("small", write_chapter().measure, seeds=1, **plan)


class TestConfiguration:
    def test_numpy_values_and_tuples_are_kept_as_they_compare(self, write_chapter):
        chapter = write_chapter(CHAPTER.replace("width=1", "width=1, sizes=(), table=None"))
        given = {"width": np.int64(2), "sizes": (1, 2), "table": {"a": (1, 2)}}
        for _ in range(2):
            record = lab.record("small", chapter.measure, seeds=[1], **given)
            assert record["value"].tolist() == [6]
            assert not record.stale

    def test_a_measurement_cannot_change_it_for_the_next_seed(self, write_chapter):
        text = CHAPTER.replace("width=1", "sizes").replace("helper(seed) * width", "sizes.pop()")
        record = lab.record("small", write_chapter(text).measure, seeds=3, sizes=[1, 2, 3, 4])
        assert record["value"].tolist() == [4, 4, 4]
        assert not record.stale

    def test_nothing_and_none_are_told_apart(self, write_chapter):
        chapter = write_chapter(CHAPTER.replace("width=1", "width=None").replace("* width", "* (width or 1)"))
        lab.record("small", chapter.measure, seeds=1)
        assert lab.record("small", chapter.measure, seeds=1, width=None).stale == ("width",)

    def test_what_cannot_be_kept_is_refused_before_anything_runs(self, write_chapter, tmp_path):
        with pytest.raises(ValueError, match="A configuration is numbers, text and lists"):
            lab.record("small", write_chapter().measure, seeds=1, width=object())
        assert measured(tmp_path) == []

    def test_seeds_may_be_numpys(self, write_chapter):
        assert lab.record("small", write_chapter().measure, seeds=np.arange(2)).seeds == (0, 1)


class TestBadInput:
    @pytest.mark.parametrize("bad", ["float('nan')", "float('inf')", "[1.0, float('nan')]"])
    def test_what_is_not_finite_is_refused_and_nothing_is_written(self, write_chapter, tmp_path, bad):
        chapter = write_chapter(CHAPTER.replace("helper(seed) * width", bad))
        with pytest.raises(ValueError, match="'value' holds values that are not finite"):
            lab.record("small", chapter.measure, seeds=1)
        assert list((tmp_path / "records").rglob("*.npz")) == []

    def test_what_is_no_number_is_refused(self, write_chapter):
        with pytest.raises(ValueError, match="A record holds numbers, 'value' is"):
            lab.record("small", write_chapter(CHAPTER.replace("helper(seed) * width", "'text'")).measure, seeds=1)

    def test_a_measurement_inside_another_function_is_refused(self):
        def inner(seed):
            return {"a": 1}

        with pytest.raises(ValueError, match="A measurement is a function at the top level"):
            lab.record("small", inner, seeds=1)

    @pytest.mark.parametrize("name", ["../escape", "a/b", "", "a b"])
    def test_a_name_that_leaves_the_folder_is_refused(self, write_chapter, name):
        with pytest.raises(ValueError, match="A record's name is letters"):
            lab.record(name, write_chapter().measure, seeds=1)

    @pytest.mark.parametrize("value", ["1.5", "{}", "{1: 2}", "{'file': 1}", "{'a': [[1], [1, 2]]}"])
    def test_what_is_no_table_of_numbers_is_refused(self, write_chapter, value):
        text = CHAPTER[: CHAPTER.index("    return {")] + f"    return {value}\n"
        with pytest.raises(ValueError, match=r"A measurement returns a dict|has a name|is ragged"):
            lab.record("small", write_chapter(text).measure, seeds=1)

    def test_half_precision_tensors_are_numbers_too(self, write_chapter):
        text = CHAPTER.replace("helper(seed) * width", "__import__('torch').ones(2).bfloat16()")
        assert lab.record("small", write_chapter(text).measure, seeds=1)["value"].tolist() == [[1, 1]]

    @pytest.mark.parametrize("seeds", [0, [], [1, 1], [1.0], ["a"], [-1], [2**33], None])
    def test_seeds_are_whole_numbers_at_least_one_and_each_once(self, write_chapter, seeds):
        with pytest.raises(ValueError, match=r"at least one seed, each once|whole number"):
            lab.record("small", write_chapter().measure, seeds=seeds)

    def test_a_full_disk_leaves_the_older_file_and_no_rest(self, write_chapter, tmp_path, monkeypatch):
        lab.record("small", write_chapter().measure, seeds=1)
        file = records.seed_file("small", "laptop", 0)
        before = file.read_bytes()

        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(np, "savez_compressed", full)
        monkeypatch.setenv("VITLAB_RECORD", "compute")
        with pytest.raises(OSError, match=r"could not be written .*No space left on device.*free some space"):
            lab.record("small", write_chapter(CHAPTER.replace("x * STEPS", "x + STEPS")).measure, seeds=1)
        assert file.read_bytes() == before
        assert not list(file.parent.glob("*.part"))

    def test_a_truncated_file_is_named(self, write_chapter):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        file = records.seed_file("small", "laptop", 0)
        file.write_bytes(file.read_bytes()[:200])
        (records.root() / "manifest.json").unlink()
        with pytest.raises(ValueError, match=r"seed-000.npz is damaged; delete it and record it again"):
            lab.record("small", chapter.measure, seeds=1)

    def test_a_file_changed_by_hand_is_not_believed(self, write_chapter):
        chapter = write_chapter()
        lab.record("small", chapter.measure, seeds=1)
        file = records.seed_file("small", "laptop", 0)
        with np.load(file) as stored:
            arrays = dict(stored)
        arrays["value"] = np.asarray(99)
        np.savez_compressed(file, **arrays)
        with pytest.raises(ValueError, match=r"is not the file that data/manifest.json lists"):
            lab.record("small", chapter.measure, seeds=1)

    def test_seeds_that_measured_different_things_are_refused(self, write_chapter):
        lab.record("small", write_chapter().measure, seeds=1)
        chapter = write_chapter(CHAPTER.replace("[seed, seed + 1.0]", "[seed]"))
        with pytest.raises(ValueError, match="Seed 1 of small at laptop measured"):
            lab.record("small", chapter.measure, seeds=2)

    def test_an_unknown_quantity_names_those_there_are(self, write_chapter):
        with pytest.raises(KeyError, match="holds value, curve, not 'accuracy'"):
            lab.record("small", write_chapter().measure, seeds=1)["accuracy"]


class TestManifestAndCheck:
    @pytest.fixture
    def recorded(self, write_chapter, tmp_path, monkeypatch):
        """A record made by a chapter run as a script, as `make record` does it."""
        write_chapter()
        script = tmp_path / "notebooks" / "small.py"
        script.write_text(CHAPTER + "\nlab.record('small', measure, seeds=2)\n")
        monkeypatch.setattr(cli, "_NOTEBOOKS", script.parent)
        monkeypatch.chdir(tmp_path)  # the command changes folder and environment; both are put back afterwards
        for name in ("VITLAB_SCALE", "VITLAB_RECORD", "MPLBACKEND"):
            monkeypatch.setenv(name, os.environ.get(name, ""))
        assert cli.main(["record", "small", "--scale", "laptop"]) == 0
        monkeypatch.setenv("VITLAB_RECORD", "auto")
        return script

    def test_a_fresh_record_passes(self, recorded, capsys):
        listed = records.manifest()["small/laptop/seed-000.npz"]
        assert listed["chapter"] == "notebooks/small.py"
        assert listed["sha256"] == records.sha256(records.seed_file("small", "laptop", 0))
        assert cli.main(["check"]) == 0
        assert "fresh, whole and listed" in capsys.readouterr().out

    def test_a_stale_record_fails_without_running_the_chapter(self, recorded, capsys):
        recorded.write_text(
            recorded.read_text().replace("x * STEPS", "x + STEPS") + "\nraise RuntimeError('ran')\n"
        )
        assert cli.main(["check"]) == 1
        assert "is stale: helper changed since" in capsys.readouterr().out

    def test_an_unlisted_an_absent_and_an_orphaned_record_fail(self, recorded):
        manifest = records.root() / "manifest.json"
        listed = json.loads(manifest.read_text())
        listed["gone/laptop/seed-000.npz"] = listed.pop("small/laptop/seed-001.npz")
        manifest.write_text(json.dumps(listed))
        recorded.rename(recorded.with_name("other.py"))
        faults = "\n".join(cli.check())
        assert "gone/laptop/seed-000.npz is in the manifest but not there" in faults
        assert "small/laptop/seed-001.npz is not in the manifest" in faults
        assert "names no chapter that made it" in faults

    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("def measure(", "def measured(", "is asked for by no lab.record"),
            ("lab.record('small'", "lab.record('large'", "is asked for by no lab.record"),
            ("STEPS = lab", "STEPS = = lab", "is no Python at line 6"),
        ],
    )
    def test_a_chapter_that_no_longer_fits_is_a_fault_and_no_traceback(self, recorded, old, new, says):
        text = recorded.read_text()
        recorded.write_text(
            text.replace(old, new).replace("', measure,", "', measured,")
            if "def" in old
            else text.replace(old, new)
        )
        assert says in "\n".join(cli.check())

    def test_a_missing_folder_of_records_is_a_fault(self, recorded, monkeypatch):
        monkeypatch.setenv("VITLAB_RECORDS", "/nowhere/at/all")
        assert "There is no folder of records at /nowhere/at/all" in cli.check()[0]

    def test_a_relative_folder_is_the_one_the_command_was_run_in(self, recorded, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("VITLAB_RECORDS", "here")
        assert cli.main(["record", "small", "--scale", "laptop"]) == 0
        assert (tmp_path / "here" / "small" / "laptop" / "seed-000.npz").is_file()

    def test_an_unknown_chapter_is_answered_with_those_there_are(self, recorded, capsys):
        assert cli.main(["record", "smal"]) == 2
        assert "There is no chapter 'smal'; the chapters are small." in capsys.readouterr().err


def test_in_a_notebook_the_cells_themselves_count(tmp_path, monkeypatch):
    """A cell run twice is still fresh; an edited cell makes the record stale; a broken cell is passed over."""
    import nbformat
    from nbclient import NotebookClient

    cells = [
        "from vitlab import lab\nSTEPS = 3\ndef measure(seed):\n    return {'value': seed * STEPS}",
        "print(lab.record('cells', measure, seeds=2).stale)",
        "STEPS = 3",
        "print(lab.record('cells', measure, seeds=2).stale)",
        "STEPS = 4",
        "print(lab.record('cells', measure, seeds=2).stale)",
        "%%time\nSTEPS = 3",
        "print(lab.record('cells', measure, seeds=2).stale)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_SCALE", "laptop")
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [c for c in notebook.cells if "print(" in c.source]
    printed = [c.outputs[-1].text.strip() for c in shown]
    assert [p.splitlines()[-1] for p in printed] == ["()", "()", "('STEPS',)", "()"]
