"""Set-up and pairing: what a bare machine is told, and that a notebook out of step is found."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAIR = ROOT / "tools" / "pair.py"
SETUP = ROOT / "tools" / "setup_env.py"

CHAPTER = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A chapter

# %% tags=["hide-input"]
print("é")
"""


def pair(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PAIR, *options, folder], capture_output=True, text=True)


class TestPair:
    def test_a_notebook_is_written_without_outputs_and_the_same_every_time(self, tmp_path):
        (tmp_path / "small.py").write_text(CHAPTER, encoding="utf-8")
        assert pair(tmp_path).returncode == 0
        first = (tmp_path / "small.ipynb").read_bytes()
        cells = json.loads(first)["cells"]
        assert [c["cell_type"] for c in cells] == ["markdown", "code"]
        assert cells[1]["outputs"] == []
        assert cells[1]["metadata"] == {"tags": ["hide-input"]}
        (tmp_path / "small.ipynb").unlink()
        assert pair(tmp_path).returncode == 0
        assert (tmp_path / "small.ipynb").read_bytes() == first
        assert pair(tmp_path, "--check").returncode == 0

    @pytest.mark.parametrize("touched", ["small.py", "small.ipynb"])
    def test_a_pair_out_of_step_fails_whichever_side_is_newer(self, tmp_path, touched):
        (tmp_path / "small.py").write_text(CHAPTER, encoding="utf-8")
        pair(tmp_path)
        file = tmp_path / touched
        file.write_text(file.read_text(encoding="utf-8").replace("é", "e"), encoding="utf-8")
        os.utime(file, (0, 0))
        done = pair(tmp_path, "--check")
        assert done.returncode == 1
        assert "small.ipynb is out of step with small.py; edit the .py and run make pair." in done.stdout

    def test_a_notebook_with_outputs_fails(self, tmp_path):
        (tmp_path / "small.py").write_text(CHAPTER, encoding="utf-8")
        pair(tmp_path)
        notebook = json.loads((tmp_path / "small.ipynb").read_text(encoding="utf-8"))
        notebook["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["é\n"]}]
        (tmp_path / "small.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        assert pair(tmp_path, "--check").returncode == 1

    def test_a_byte_order_mark_is_no_code(self, tmp_path):
        (tmp_path / "small.py").write_text("\ufeff" + CHAPTER, encoding="utf-8")
        assert pair(tmp_path).returncode == 0
        cells = json.loads((tmp_path / "small.ipynb").read_text(encoding="utf-8"))["cells"]
        assert [c["cell_type"] for c in cells] == ["markdown", "code"]

    def test_a_mark_that_notebooks_take_for_a_line_end_is_refused(self, tmp_path):
        (tmp_path / "small.py").write_text(CHAPTER + 'mark = "a\u2028b"\n', encoding="utf-8")
        done = pair(tmp_path)
        assert done.returncode == 1
        assert (
            "small.py holds '\\u2028', which notebooks take for a line end; write it as an escape." in done.stderr
        )
        assert not (tmp_path / "small.ipynb").exists()

    def test_a_missing_folder_is_told(self, tmp_path):
        done = pair(tmp_path / "nowhere", "--check")
        assert done.returncode == 2
        assert "there is no folder" in done.stderr

    def test_a_notebook_alone_fails(self, tmp_path):
        (tmp_path / "alone.ipynb").write_text("{}")
        done = pair(tmp_path, "--check")
        assert done.returncode == 1
        assert "alone.ipynb has no alone.py" in done.stdout

    def test_the_chapters_are_in_step(self):
        assert pair(ROOT / "notebooks", "--check").stdout == ""

    def test_the_published_address_stands_in_one_place(self, tmp_path, monkeypatch):
        """A fork sets it in _config.yml; every notebook's first cell follows."""
        pairing = runpy.run_path(str(PAIR))
        source = tmp_path / "small.py"
        source.write_text(CHAPTER + f'\naddress = "{pairing["PLACEHOLDER"]}"\n', encoding="utf-8")
        text = pairing["notebook_text"](source, "https://example.org/a/fork")
        assert "https://example.org/a/fork" in text
        assert "OWNER" not in text
        assert pairing["published_address"]().startswith("https://")

    def test_jupytext_reads_back_the_same_chapter(self):
        import jupytext

        pairing = runpy.run_path(str(PAIR))
        here = pairing["published_address"](), pairing["PLACEHOLDER"]
        for source in (ROOT / "notebooks").glob("*.py"):
            written = jupytext.read(source.with_suffix(".ipynb"))
            read = jupytext.read(source, fmt="py:percent")
            assert [c.source.replace(*here) for c in written.cells] == [c.source for c in read.cells]


class TestSetup:
    def run_as(self, monkeypatch, capsys, tmp_path, version=(3, 11), free=100e9):
        """Run the set-up as if on another Python or disk, installing nothing; return its message."""
        monkeypatch.setattr(sys, "argv", ["setup_env.py", str(tmp_path / "venv")])
        monkeypatch.setattr(sys, "version_info", version)
        monkeypatch.setattr(shutil, "which", lambda name: None)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(free, 0, free))

        def refuse(*_, **__):
            raise AssertionError("nothing may be installed here")

        monkeypatch.setattr(subprocess, "check_call", refuse)
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(SETUP), run_name="__main__")
        assert stopped.value.code == 1
        return capsys.readouterr().err

    def test_a_python_that_does_not_fit_is_told_which_would(self, monkeypatch, capsys, tmp_path):
        for version in ((3, 9), (3, 14)):
            said = self.run_as(monkeypatch, capsys, tmp_path, version=version)
            assert f"needs Python 3.11 to 3.13, and this is 3.{version[1]}; install one of those" in said

    def test_a_full_disk_is_told_before_anything_is_installed(self, monkeypatch, capsys, tmp_path):
        said = self.run_as(monkeypatch, capsys, tmp_path, free=1.5e9)
        assert "needs about 8 GB of disk and 1.5 GB are free" in said
        assert not (tmp_path / "venv").exists()

    def test_a_failing_installation_says_how_to_go_on_and_is_not_taken_for_done(self, tmp_path):
        venv = tmp_path / "venv"
        (venv / "bin").mkdir(parents=True)
        python = venv / "bin" / "python"
        python.write_text('#!/bin/sh\ncase "$*" in *--version*) exit 0;; *) exit 1;; esac\n')
        python.chmod(0o755)
        done = subprocess.run([sys.executable, SETUP, venv], capture_output=True, text=True)
        assert done.returncode == 1
        assert "Run the same command again to go on." in done.stderr
        assert not (venv / ".ready").exists()


def test_help_names_every_command():
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for command in ("book", "test", "quick", "bench", "record", "serve", "clean"):
        assert f"\n{command} " in "\n" + done.stdout
