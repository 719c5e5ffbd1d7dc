"""Checkpoints: a training that is killed goes on to the bit; what is no checkpoint is refused in a sentence."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from toys import CLASSES, Tied, assert_same, feed, linear, one_sentence, vit, weights

from vitlab import lab, train
from vitlab.models.convstem import ConvStemViT
from vitlab.train import checkpoints
from vitlab.train.checkpoints import Checkpoint, load, write

RECIPE = train.Recipe(steps=12, batch_size=8, lr=3e-3, warmup=3, ema=0.9)


def fit(model, file=None, recipe=RECIPE, **more):
    return train.fit(model, feed(), train.supervised(CLASSES), recipe, checkpoint=file, **more)


def stopped(file, at=7, recipe=RECIPE, model=None):
    """Leave the checkpoint of a training that had no more time after some steps."""

    def stop(now):
        if now.step == at:
            os.environ["VITLAB_DEADLINE"] = str(time.time() - 1)

    try:
        with pytest.raises(lab.OutOfTime) as caught:
            fit(model or vit(), file, recipe, callbacks=[stop])
    finally:
        os.environ.pop("VITLAB_DEADLINE", None)
    return caught.value


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run" / "net.safetensors"


def alone(file: Path) -> bool:
    """Whether nothing but the checkpoint is in its folder."""
    return [p.name for p in file.parent.iterdir()] == [file.name]


def test_a_training_killed_ten_times_ends_as_one_that_was_not(tmp_path):
    script = Path(__file__).with_name("killed.py")
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "VITLAB_STATIC": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0 and run.stdout == "killed 10 times\n", run.stderr[-3000:]


class TestOutOfTime:
    @pytest.mark.parametrize("kind", ["vit", "with dropout and batch norm"])
    def test_it_stops_with_a_checkpoint_and_goes_on_to_the_bit(self, kind, file):
        def new():
            return vit() if kind == "vit" else vit(ConvStemViT, dropout=0.2, drop_path=0.3)

        says = one_sentence(stopped(file, model=new()))
        assert says == "Time is up after 7 of 12 steps; net.safetensors holds them."
        assert alone(file) and load(file)[1]["step"] == 7
        ours, theirs = new(), new()
        resumed, whole = fit(ours, file), fit(theirs)
        assert np.array_equal(resumed.losses, whole.losses)
        assert_same(weights(ours), weights(theirs))
        assert_same(weights(resumed.ema), weights(whole.ema))
        assert alone(file) and load(file)[1]["step"] == 12

    def test_it_stops_when_the_clock_says(self, file, monkeypatch):
        monkeypatch.setenv("VITLAB_DEADLINE", str(time.time() + 0.5))
        begun = time.monotonic()
        with pytest.raises(lab.OutOfTime):
            fit(linear(), file, train.Recipe(steps=10**6, batch_size=8))
        assert 0.3 < time.monotonic() - begun < 30
        assert load(file)[1]["step"] > 0

    def test_no_time_at_all_leaves_a_checkpoint_of_no_steps(self, file, monkeypatch):
        monkeypatch.setenv("VITLAB_DEADLINE", "0")
        with pytest.raises(lab.OutOfTime, match="after 0 of 12 steps"):
            fit(linear(), file)
        monkeypatch.delenv("VITLAB_DEADLINE")
        assert np.array_equal(fit(linear(), file).losses, fit(linear()).losses)

    def test_without_a_file_it_says_so(self, monkeypatch):
        monkeypatch.setenv("VITLAB_DEADLINE", "0")
        with pytest.raises(lab.OutOfTime, match="no checkpoint was asked for") as caught:
            fit(linear())
        one_sentence(caught.value)

    def test_a_training_that_is_done_needs_no_time(self, file, monkeypatch):
        losses = fit(linear(), file).losses
        monkeypatch.setenv("VITLAB_DEADLINE", "0")
        assert np.array_equal(fit(linear(), file).losses, losses)


def test_a_finished_training_comes_back_whole_and_is_not_written_again(file):
    def look(now):
        now.note(step=now.step)

    ours, theirs = vit(), vit(depth=2)
    first = fit(ours, file, callbacks=[train.every(5, look)])
    made = file.stat().st_mtime_ns
    assert not any(name.startswith("optimizer") for name in load_file(file))
    again = fit(theirs, file, callbacks=[train.every(5, look)])
    assert file.stat().st_mtime_ns == made
    assert np.array_equal(first.losses, again.losses) and not theirs.training
    assert_same(weights(ours), weights(theirs))
    assert_same(weights(first.ema), weights(again.ema))
    assert again.log["step"][0].tolist() == [0, 5, 10, 12] == again.log["step"][1].tolist()


def test_saves_are_far_apart_and_a_hundred_times_as_long_as_they_take(file, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    steps = []
    real = Checkpoint.save

    def save(self, now):
        real(self, now)
        clock[0] += 3  # what it takes
        self.cost, self.saved = 3.0, clock[0]
        steps.append(now.step)

    monkeypatch.setattr(Checkpoint, "save", save)

    def tick(now):
        clock[0] += 10

    fit(linear(), file, train.Recipe(steps=100, batch_size=8), callbacks=[tick])
    assert steps == [5, 35, 65, 95, 100]  # after a minute, then every 300 s, and at the end


def test_the_losses_and_the_notes_are_in_the_file(file):
    result = fit(linear(), file, callbacks=[train.every(6, lambda now: now.note(x=now.step))])
    tensors, header = load(file)
    assert np.array_equal(tensors["losses"].numpy(), result.losses)
    assert header["log"] == {"x": [0, 6, 12]} and header["recipe"]["steps"] == 12


class TestBadFiles:
    @pytest.fixture
    def good(self, file):
        stopped(file)
        return file

    def refused(self, file, says, model=None, recipe=RECIPE):
        before = file.read_bytes()
        with pytest.raises(ValueError, match=says) as caught:
            fit(model or vit(), file, recipe)
        assert file.read_bytes() == before and alone(file)
        return one_sentence(caught.value)

    def test_cut_off_anywhere(self, good):
        whole = good.read_bytes()
        header = int.from_bytes(whole[:8], "little")
        places = [1, 7, 8, 9, 8 + header // 2, 8 + header - 1, 8 + header, 8 + header + 1, len(whole) - 1]
        for place in [*places, *random.Random(0).sample(range(len(whole)), 20)]:
            good.write_bytes(whole[:place])
            with pytest.raises(ValueError, match="damaged or no safetensors file") as caught:
                load(good)
            one_sentence(caught.value)
        self.refused(good, "damaged or no safetensors file")

    def test_one_byte_changed_anywhere(self, good):
        whole = good.read_bytes()
        for place in random.Random(0).sample(range(len(whole)), 60):
            good.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
            with pytest.raises(ValueError, match=r"damaged|no checkpoint") as caught:
                load(good)
            one_sentence(caught.value)

    @pytest.mark.parametrize("what", ["empty", "noise", "text", "more at the end"])
    def test_other_bytes(self, what, good):
        noise = np.random.default_rng(0).bytes(5000)
        good.write_bytes(
            {
                "empty": b"",
                "noise": noise,
                "text": b"Dear reader, " * 99,
                "more at the end": good.read_bytes() + b"x",
            }[what]
        )
        self.refused(good, "delete it and train again")

    def test_a_pickle_is_not_opened(self, good):
        class Trap:
            def __reduce__(self):
                return os.abort, ()

        for zipped in (True, False):
            torch.save({"model": Trap()}, good, _use_new_zipfile_serialization=zipped)
            self.refused(good, "damaged or no safetensors file")

    @pytest.mark.parametrize("meta", [None, {"format": "pt"}])
    def test_safetensors_of_others(self, meta, good):
        save_file({"x": torch.zeros(2)}, good, metadata=meta)
        self.refused(good, "no checkpoint of a training, its format is")

    @pytest.mark.parametrize(
        "header",
        ["{", "[]", "3", json.dumps({"step": 3}), json.dumps(dict.fromkeys(("step", "recipe", "log", "scaler")))],
    )
    def test_a_header_that_lacks_something(self, header, good):
        save_file({"x": torch.zeros(2)}, good, metadata={"format": checkpoints.FORMAT, "header": header})
        self.refused(good, "damaged")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"steps": 13}, "of another training, its steps is 12 and not 13"),
            ({"lr": 1e-3}, "its lr is 0.003 and not 0.001"),
            ({"seed": 1}, "its seed is 0 and not 1"),
            ({"betas": (0.9, 0.99)}, "its betas is"),
            ({"ema": None}, "its ema is 0.9 and not None"),
        ],
    )
    def test_another_recipe(self, change, says, good):
        numbers = {"steps": 12, "batch_size": 8, "lr": 3e-3, "warmup": 3, "ema": 0.9}
        self.refused(good, says, recipe=train.Recipe(**(numbers | change)))

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"dim": 8}, r"does not fit the model: cls_token is \(1, 1, 16\) in the file and \(1, 1, 8\) here"),
            ({"classes": 4}, r"head.weight is \(3, 16\) in the file and \(4, 16\) here"),
            ({"depth": 3}, r"blocks.2.norm1.weight is absent in the file and \(16,\) here"),
            ({"depth": 1}, r"blocks.1.attn.proj.bias is \(16,\) in the file and absent here"),
        ],
    )
    def test_another_network_names_the_first_that_does_not_fit(self, sizes, says, good):
        self.refused(good, says, model=vit(**sizes))

    def test_there_is_none(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="There is no checkpoint") as caught:
            load(tmp_path / "none.safetensors")
        one_sentence(caught.value)


class TestNoPlace:
    def test_a_full_disk_leaves_what_was_saved(self, file):
        """A limit on the size of files stands for the disk: it cuts the write off in the middle."""
        stopped(file)
        before = file.read_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 3, hard))
            with pytest.raises(
                OSError, match=r"net.safetensors could not be written .* saved before still stands"
            ) as caught:
                fit(vit(), file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, old)
        one_sentence(caught.value)
        assert file.read_bytes() == before and alone(file)
        assert np.array_equal(fit(vit(), file).losses, fit(vit()).losses)

    @pytest.mark.parametrize("place", ["below a file", "in a closed file system", "is a folder"])
    def test_a_place_that_cannot_be_written(self, place, tmp_path):
        (tmp_path / "file").write_text("mine")
        (tmp_path / "folder.safetensors").mkdir()
        path = {
            "below a file": tmp_path / "file" / "deeper" / "net.safetensors",
            "in a closed file system": Path("/proc/net.safetensors"),
            "is a folder": tmp_path / "folder.safetensors",
        }[place]
        with pytest.raises(OSError, match=r"could not be written|no checkpoint") as caught:
            write(path, {"x": torch.zeros(2)}, {})
        one_sentence(caught.value)
        with pytest.raises(OSError, match=r"could not be written|no checkpoint") as caught:
            fit(linear(), path)
        one_sentence(caught.value)
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder.safetensors"]
        assert (tmp_path / "file").read_text() == "mine"

    def test_what_a_killed_process_left_is_taken_away(self, tmp_path):
        path = tmp_path / "net[1].safetensors"
        (tmp_path / "net[1].safetensors.123.part").write_text("half")
        (tmp_path / "net1.safetensors.123.part").write_text("another's")
        write(path, {"x": torch.zeros(2)}, {})
        assert sorted(p.name for p in tmp_path.iterdir()) == ["net1.safetensors.123.part", "net[1].safetensors"]


def test_the_scale_of_fp16_losses_comes_back(tmp_path):
    """Where the hardware has fp16 alone, the loss is scaled, and the scale is learned: it belongs to the state."""

    def keeper(scaler):
        model = linear()
        optimizer = torch.optim.AdamW(model.parameters())
        alone = SimpleNamespace(
            num_processes=1,
            is_main_process=True,
            scaler=scaler,
            reduce=lambda x, _: x,
            wait_for_everyone=lambda: None,
        )
        now = train.Progress(0, 12, model, None, train.supervised(3), torch.zeros(12))
        return Checkpoint(tmp_path / "c", RECIPE, model, nn.Module(), optimizer, None, alone), now

    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    scaler._lazy_init_scale_growth_tracker(torch.device("cpu"))
    saved, now = keeper(scaler)
    now.step = 5
    scaler.update(64.0)
    saved.save(now)
    fresh = torch.amp.GradScaler("cpu")
    resumed, now = keeper(fresh)
    resumed.resume(now)
    assert now.step == 5 and fresh.state_dict() == scaler.state_dict() and fresh.get_scale() == 64.0
    plain, now = keeper(None)  # and without one nothing is asked
    plain.resume(now)


def test_tied_weights_go_through_a_checkpoint(file):
    stopped(file, model=Tied())
    ours, theirs = Tied(), Tied()
    assert np.array_equal(fit(ours, file).losses, fit(theirs).losses)
    assert ours.one.weight is ours.other.weight
    assert_same(weights(ours), weights(theirs))


def test_a_stop_before_the_first_step_leaves_no_note_twice(tmp_path, monkeypatch):
    """However often a training is stopped before it begins, its callbacks note step 0 once."""
    file = tmp_path / "c.safetensors"

    def run():
        look = train.every(4, lambda now: now.note(step=now.step))
        recipe = train.Recipe(steps=8, batch_size=8)
        return train.fit(linear(), feed(8), train.supervised(CLASSES), recipe, checkpoint=file, callbacks=[look])

    monkeypatch.setenv("VITLAB_DEADLINE", "0")
    for _ in range(2):
        with pytest.raises(lab.OutOfTime):
            run()
    monkeypatch.delenv("VITLAB_DEADLINE")
    steps, values = run().log["step"]
    assert steps.tolist() == values.tolist() == [0, 4, 8]


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(OSError, match="is a folder and no checkpoint; name a file in it"):
        train.fit(
            linear(), feed(8), train.supervised(CLASSES), train.Recipe(steps=2, batch_size=8), checkpoint=tmp_path
        )
