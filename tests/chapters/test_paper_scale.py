"""The bottleneck's chapter at paper scale: its sizes as they are, and its commands from end to end on toys.

The toy is the chapter itself. Its text is taken as it stands, and only the numbers that make it long are replaced
by those of the smoke scale; which data, crops, patches and objectives there are remains what paper scale says.
The pictures are made here, laid out as `$VITLAB_DATA` expects them.
"""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab import cli, records, slices, train
from vitlab.models import dino
from vitlab.models.vit import ViTConfig
from vitlab.train import checkpoints

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "notebooks" / "inductive_bottleneck.py"
# Of each data set: the side of an image, of a patch and of a local crop, how many images are trained on.
SETS = {
    "ucmerced": (224, 16, 96, 1680),
    "tinyimagenet": (64, 8, 32, 100_000),
    "cifar100": (32, 4, 16, 50_000),
}
SHRUNK = {"BATCH", "HELD_OUT", "PROFILED", "outputs", "bottleneck", "hidden", "dim", "depth", "heads"}
EPOCHS, BATCH, SHOWN = 11, 16, 24  # of the toy: 16 steps, a batch and a half an epoch
STEPS = EPOCHS * SHOWN // BATCH


class Toy(ast.NodeTransformer):
    """Gives sizes their value at smoke scale at paper scale too, and makes one seed of few epochs."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def shrunk(self, name: str, value: ast.expr) -> ast.expr:
        small = {"EPOCHS": EPOCHS, "SEEDS": 1}.get(name)
        if small is not None and isinstance(value, ast.Constant):
            self.done.append(name)
            return ast.Constant(small)
        if name in SHRUNK and isinstance(value, ast.Call) and ast.unparse(value.func) == "lab.choose":
            self.done.append(name)
            scales = {keyword.arg: keyword for keyword in value.keywords}
            scales["paper"].value = scales["smoke"].value
        return value

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.shrunk(ast.unparse(node.targets[0]), node.value)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.value = self.shrunk(node.arg or "", node.value)
        return self.generic_visit(node)


@pytest.fixture(scope="module")
def paper() -> types.ModuleType:
    """The chapter's definitions at paper scale, as its first record has them; nothing is measured."""
    chapter = slices.Chapter(CHAPTER)
    module = types.ModuleType("__main__")
    module.__file__ = str(CHAPTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITLAB_SCALE", "paper")
        patch.setitem(sys.modules, "__main__", module)
        one = next(one for one in chapter.asks if one.name == "bottleneck_ucmerced")
        body = [chapter.body[k] for k in one.needs[:-1]]
        exec(compile(ast.Module(body, []), str(CHAPTER), "exec"), module.__dict__)
    return module


class TestSizes:
    """What is trained where a GPU is, without training it."""

    @pytest.fixture(autouse=True)
    def scale(self, monkeypatch) -> None:
        monkeypatch.setenv("VITLAB_SCALE", "paper")

    @pytest.mark.parametrize("source", SETS)
    def test_it_is_vit_small_on_crops_of_whole_patches(self, paper, source):
        side, patch, small, _ = SETS[source]
        with torch.device("meta"):
            model = paper.build("dino", source, 10, paper.HEAD)
        aim, views = paper.task("dino", model, source, 10, 1000)
        assert model.backbone.config == ViTConfig.small(image_size=side, patch_size=patch, classes=0)
        assert (model.backbone.config.dim, model.backbone.config.depth, model.backbone.config.heads) == (
            384,
            12,
            6,
        )
        crops = [view.transforms[0].size for view in views.views]
        assert crops == [side, side, small, small] and small % patch == 0
        assert isinstance(aim, train.dino) and (aim.steps, aim.global_views, aim.frozen_steps) == (1000, 2, 10)

    def test_its_parameters_are_those_of_vit_small(self, paper):
        with torch.device("meta"):
            model = paper.build("dino", "ucmerced", 10, paper.HEAD)
        assert sum(p.numel() for p in model.backbone.parameters()) == 21_665_664

    @pytest.mark.parametrize(("source", "steps"), [*zip(SETS, (656, 39_062, 19_531), strict=True)])
    def test_it_is_trained_for_100_epochs_of_the_images_there_are(self, paper, source, steps):
        images = SETS[source][3]
        assert paper.steps_for(images) == steps
        assert 0 <= 100 * images - steps * paper.BATCH < paper.BATCH

    def test_there_is_a_command_for_each_data_set(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path))
        for name in ("VITLAB_RECORD", "MPLBACKEND"):
            monkeypatch.setenv(name, os.environ.get(name, ""))
        for source in SETS:
            command = ["record", "inductive_bottleneck", "--record", f"bottleneck_{source}", "--scale", "paper"]
            assert cli.main([*command, "--dry-run"]) == 0
            rows = capsys.readouterr().out.splitlines()[1:]
            assert [row.split()[:2] for row in rows[:-1]] == [[f"bottleneck_{source}", str(k)] for k in range(3)]


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """The toy's chapter, in a folder with pictures for it."""
    room = tmp_path_factory.mktemp("paper")
    file = room / "notebooks" / "inductive_bottleneck.py"
    file.parent.mkdir()
    change = Toy()
    text = ast.unparse(change.visit(ast.parse(CHAPTER.read_text(encoding="utf-8"))))
    assert set(change.done) == SHRUNK | {"EPOCHS", "SEEDS"} and len(change.done) == len(SHRUNK) + 2
    file.write_text(text)
    rng = np.random.default_rng(0)
    for source, (side, *_) in SETS.items():
        # Nobody has divided UC Merced: of 15 pictures of a class every fifth is held out.
        parts = {"": 15} if source == "ucmerced" else {"train": 12, "val": 5}
        for part, count in parts.items():
            for shade in (60, 180):
                folder = room / "images" / source / part / f"class{shade}"
                folder.mkdir(parents=True)
                for k in range(count):
                    coarse = rng.normal(shade, 50, (side // 8, side // 8, 3)).clip(0, 255).astype(np.uint8)
                    Image.fromarray(coarse.repeat(8, 0).repeat(8, 1)).save(folder / f"{k:02}.png")
    return room


@pytest.fixture
def here(toy, tmp_path, monkeypatch) -> Path:
    """The toy's room, with empty records of this test, and a checkpoint after each step."""
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_DATA", str(toy / "images"))
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "TIMES", 0)
    monkeypatch.delenv("VITLAB_DEADLINE", raising=False)
    return toy


def command(room: Path, source: str, *more: str) -> list[str]:
    """The command for one data set, as `make record` gives it to `vitlab.lab`."""
    chapter = str(room / "notebooks" / "inductive_bottleneck.py")
    return ["record", chapter, "--record", f"bottleneck_{source}", "--scale", "paper", *more]


def run(*arguments: str) -> None:
    """Run a command in this process, which stays as it was."""
    main, environment, folder = sys.modules["__main__"], os.environ.copy(), Path.cwd()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes that it is compared with
    try:
        assert cli.main(list(arguments)) == 0
    finally:
        torch.set_num_threads(threads)
        sys.modules["__main__"] = main
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)


def file_of(source: str) -> Path:
    return records.root() / f"bottleneck_{source}" / "paper" / "seed-000.npz"


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory) -> dict[str, tuple[dict[str, np.ndarray], set[tuple[int, int, int]]]]:
    """What one process finds that nothing interrupts, and the side, patch and tokens of every image it saw."""
    found = {}
    embed = dino.CropViT.embed
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITLAB_RECORDS", str(tmp_path_factory.mktemp("whole")))
        patch.setenv("VITLAB_DATA", str(toy / "images"))
        patch.delenv("VITLAB_DEADLINE", raising=False)
        for source in SETS:
            seen: set[tuple[int, int, int]] = set()

            def embedded(self: Any, images: torch.Tensor, seen: set[Any] = seen) -> torch.Tensor:
                tokens = embed(self, images)
                seen.add((images.shape[-1], self.config.patch_size, tokens.shape[1]))
                return tokens

            patch.setattr(dino.CropViT, "embed", embedded)
            run(*command(toy, source))
            found[source] = records.read(file_of(source))[0], seen
            assert not list(records.root().rglob("*.parts"))
    return found


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Whether two records hold the same numbers, to the bit."""
    return found.keys() == expected.keys() and all(np.array_equal(v, expected[k]) for k, v in found.items())


@pytest.mark.parametrize("source", SETS)
def test_every_data_set_has_its_own_crops_and_is_measured_at_every_depth(whole, source):
    values, seen = whole[source]
    side, patch, small, _ = SETS[source]
    assert seen == {(s, patch, 1 + (s // patch) ** 2) for s in (side, small)}
    assert values["moments"].tolist() == [[0, 1, 2, 4, 8, STEPS]]
    assert values["total"].shape == (1, 6, 2 + 2, 16)  # objective, moments, depths, width
    for part in ("position", "image", "residual", "trimmed", "class"):
        assert values[part].shape == (1, 2, 4, 16)  # before and after
    split = sum(values[part].sum(-1) for part in ("position", "image", "residual"))
    np.testing.assert_allclose(split, values["total"][:, [0, -1]].sum(-1), rtol=1e-5)
    held_out = 6 if source == "ucmerced" else 10
    assert values["right"].shape == (1, 2, 2, held_out) and values["pixels"].shape == (held_out,)
    assert not np.array_equal(values["total"][0, 0], values["total"][0, -1])  # it was trained


KILLED = """
import os, signal, sys
from vitlab import cli
from vitlab.train import checkpoints

checkpoints.SECONDS, checkpoints.TIMES = 0.0, 0
save, at = checkpoints.Checkpoint.save, int(sys.argv[1])

def saved(self, now):
    save(self, now)
    if now.step == at:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoints.Checkpoint.save = saved
cli.main(sys.argv[2:])
"""


def test_one_that_is_killed_goes_on_by_the_same_command_to_the_same_numbers(here, whole):
    """Nothing is cleaned up, and what was trained is not trained again."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "7", *command(here, "ucmerced")], cwd=ROOT, capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    (kept,) = file_of("ucmerced").with_suffix(".parts").rglob("*.safetensors")
    assert not file_of("ucmerced").exists() and checkpoints.load(kept)[1]["step"] == 7
    steps: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        step = train.dino.after_step
        patch.setattr(train.dino, "after_step", lambda self, m, k: (steps.append(k), step(self, m, k))[1])
        run(*command(here, "ucmerced"))
    assert steps == list(range(7, STEPS))
    assert same(records.read(file_of("ucmerced"))[0], whole["ucmerced"][0])
    assert not kept.exists()


def test_a_budget_stops_it_at_a_checkpoint_and_the_next_goes_on(here, whole, monkeypatch, capsys):
    save = checkpoints.Checkpoint.save

    def out_of_time(self: checkpoints.Checkpoint, now: train.loop.Progress) -> None:
        save(self, now)
        if now.step == 5:
            os.environ["VITLAB_DEADLINE"] = "0"

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Checkpoint, "save", out_of_time)
        run(*command(here, "tinyimagenet", "--budget", "2h"))
    assert (
        "The time is up: 0 of 1 seeds are kept, seed 0 of bottleneck_tinyimagenet is kept at a checkpoint; the "
        "same command goes on from there."
    ) in capsys.readouterr().out
    assert not file_of("tinyimagenet").exists()
    run(*command(here, "tinyimagenet", "--budget", "2h"))
    assert same(records.read(file_of("tinyimagenet"))[0], whole["tinyimagenet"][0])


def test_two_processes_make_one_record_of_the_same_numbers(here, whole):
    """As a launcher starts them; where sums have another order, the last digits differ."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "vitlab.lab", *command(here, "cifar100")],
            cwd=ROOT,
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], said[0][1][-3000:] + said[1][1][-3000:]
    assert "2 processes" in said[0][0] and said[1][0] == ""
    assert [file.name for file in records.root().rglob("*.npz")] == ["seed-000.npz"]
    values, meta = records.read(file_of("cifar100"))
    assert "2 processes on" in meta["hardware"]
    expected = whole["cifar100"][0]
    assert values.keys() == expected.keys()
    # A neighbour may win by a last digit; what is told of the teacher's outputs is of the first process's images.
    for key in values.keys() - {"right", "pixels", "told"}:
        largest = np.abs(expected[key]).max()
        np.testing.assert_allclose(values[key], expected[key], rtol=0, atol=1e-3 * largest, err_msg=key)
    assert np.array_equal(values["pixels"], expected["pixels"]) and np.isfinite(values["told"]).all()
