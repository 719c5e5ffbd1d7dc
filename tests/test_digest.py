"""The fingerprint of code: what counts, what does not, and that it is the same on every Python."""

from __future__ import annotations

import pytest

from vitlab import digest

CHAPTER = """
from vitlab import fake
from vitlab.fake.part import tool as renamed
from vitlab.plumbing import pipe
import torch

WIDTH = 3

def measure(seed):
    WIDTHS = torch.ones(WIDTH)
    pipe()
    return renamed(seed) + fake.part.other(WIDTHS)
"""

PART = '''
from .deeper import Deep

def tool(x):
    """What it is for."""
    if x is None:
        raise ValueError(f"x is {x!r}.")
    return Deep().run(x)

def other(x):
    return x

def unused(x):
    return x
'''


def forget() -> None:
    """Begin another run, in which files are read anew."""
    digest._load.cache_clear()
    digest._chapter.cache_clear()
    digest._texts.clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package that stands where vitlab stands, and a function to change one of its files."""
    monkeypatch.setattr(digest, "_ROOT", tmp_path)
    forget()
    folder = tmp_path / "vitlab" / "fake"
    folder.mkdir(parents=True)
    files = {
        "vitlab/__init__.py": "",
        "vitlab/plumbing.py": "PLUMBING = True\n\ndef pipe():\n    return 1\n",
        "vitlab/fake/__init__.py": "",
        "vitlab/fake/part.py": PART,
        "vitlab/fake/deeper.py": "class Deep:\n    SCALE = 2\n    def run(self, x): return x * self.SCALE\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def change(name: str, old: str, new: str) -> list[str]:
        file = tmp_path / name
        before = digest.digest(CHAPTER, "measure", "laptop")
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        forget()
        return digest.changed(before, digest.digest(CHAPTER, "measure", "laptop"))

    yield change
    forget()


def test_it_follows_imports_to_the_bottom(package):
    found = digest.digest(CHAPTER, "measure", "laptop")
    assert set(found) == {
        "measure",
        "WIDTH",
        "vitlab.fake.part.tool",
        "vitlab.fake.part.other",
        "vitlab.fake.deeper.Deep",
    }


def test_a_change_deep_in_the_package_counts(package):
    assert package("vitlab/fake/deeper.py", "SCALE = 2", "SCALE = 3") == ["vitlab.fake.deeper.Deep"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("vitlab/fake/part.py", "def unused(x):\n    return x", "def unused(x):\n    return -x"),
        ("vitlab/fake/part.py", "What it is for.", "What it is good for."),
        ("vitlab/fake/part.py", "return Deep().run(x)", "return (Deep()\n        .run(x))  # why"),
        ("vitlab/fake/part.py", "x is {x!r}.", "x must be a number, not {x!r}."),
        ("vitlab/plumbing.py", "return 1", "return 2"),
    ],
)
def test_what_cannot_change_a_number_does_not_count(package, name, old, new):
    assert package(name, old, new) == []


def test_another_error_or_condition_does_count(package):
    assert package("vitlab/fake/part.py", "raise ValueError(", "raise TypeError(") == ["vitlab.fake.part.tool"]
    assert package("vitlab/fake/part.py", "if x is None", "if x == 3") == ["vitlab.fake.part.tool"]


def test_a_local_name_is_no_dependency(package):
    text = CHAPTER.replace("WIDTHS = torch.ones(WIDTH)", "WIDTH = 1; WIDTHS = torch.ones(WIDTH)")
    assert "WIDTH" not in digest.digest(text, "measure", "laptop")


@pytest.mark.parametrize(
    "extra",
    [
        "from math import sqrt as WIDTH\ndef WIDTH(): return {}",
        "try:\n    from fast import WIDTH\nexcept ImportError:\n    WIDTH = {}",
        "WIDTH = 3\nWIDTH += {}",
        "WIDTH = [3]\nWIDTH[0] = {}",
        "WIDTH = [3]\nWIDTH.append({})",
        "def WIDTH(): return 1\nWIDTH.scale = {}",
        "for WIDTH in range({}): pass",
        "def unrelated():\n    from os.path import join as WIDTH\n\ndef WIDTH(): return {}",
    ],
)
def test_however_a_name_gets_its_value_a_change_of_it_counts(package, extra):
    one, two = (digest.digest(CHAPTER.replace("WIDTH = 3", extra.format(k)), "measure", "laptop") for k in (1, 2))
    assert digest.changed(one, two) == ["WIDTH"]


def test_set_back_is_as_before(package):
    text = CHAPTER + "\nWIDTH = 4\nWIDTH = 3\n"
    assert digest.digest(text, "measure", "laptop") == digest.digest(CHAPTER, "measure", "laptop")


def test_a_star_import_of_the_package_is_refused(package):
    with pytest.raises(ValueError, match=r"`from vitlab.fake.part import \*` brings cannot be told"):
        digest.digest(CHAPTER + "\nfrom vitlab.fake.part import *\n", "measure", "laptop")


def test_a_package_handed_on_counts_with_all_its_modules(package):
    text = CHAPTER.replace("fake.part.other(WIDTHS)", "run(fake)")
    assert {"vitlab.fake.part.unused", "vitlab.fake.deeper.Deep"} <= set(digest.digest(text, "measure", "laptop"))


def test_how_many_seeds_another_record_has_does_not_count(package):
    text = CHAPTER.replace("WIDTH = 3", "SEEDS = 3\nWIDTH = lab.record('w', measure, seeds=SEEDS)")
    more = text.replace("SEEDS = 3", "SEEDS = 5")
    assert digest.digest(text, "measure", "laptop") == digest.digest(more, "measure", "laptop")


def test_when_another_record_is_made_does_not_count(package):
    text = CHAPTER.replace("WIDTH = 3", "WIDTH = lab.record('w', measure, seeds=3)")
    more = text.replace("seeds=3", "seeds=3, rank=2, minutes=lab.choose(smoke=1, laptop=5, paper=9)")
    assert digest.digest(text, "measure", "laptop") == digest.digest(more, "measure", "laptop")


def test_a_module_handed_on_whole_counts_whole(package):
    text = CHAPTER.replace("fake.part.other(WIDTHS)", "seed").replace("pipe()", "run(fake.part)")
    assert "vitlab.fake.part.unused" in digest.digest(text, "measure", "laptop")


def test_a_cell_run_twice_binds_once(package):
    assert digest.digest(CHAPTER + "\nWIDTH = 3\n", "measure", "laptop") == digest.digest(
        CHAPTER, "measure", "laptop"
    )


def test_an_unknown_function_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="'absent' is not defined there"):
        digest.digest("x = 1", "absent", "laptop")


def test_it_is_the_same_on_every_python():
    """Recorded on 3.11; the weekly run on 3.13 must find the same, or every record would turn stale there."""
    text = "def f(x, *, y: int = 2):\n    with open(x) as s:\n        return [f'{a!r:>{y}}' for a in s if a]\n"
    assert digest.digest(text, "f", "laptop") == {"f": "fcc5f39cfe1e"}
