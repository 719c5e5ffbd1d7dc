"""Feeds: a batch follows from the seed and the step alone, whoever asks and in whatever order."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import class_folders, picture
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from vitlab import data
from vitlab.data.feeds import InMemory, Stream, reader
from vitlab.data.views import Colour, Flip, MultiCrop, Shift, View

PLAIN, LIVELY = View(), View(Shift(2), Flip(), Colour(0.4, hue=0.1))


def numbered(images=20):
    """Tiny images, each of one value, its label."""
    labels = torch.arange(images)
    return labels.to(torch.uint8).view(-1, 1, 1, 1).expand(images, 3, 6, 6).contiguous(), labels


def in_memory(images=20, batch_size=8, view=LIVELY, seed=0):
    return InMemory(numbered(images), batch_size, view, seed, "cpu")


def same(a, b):
    return torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


# In memory


@settings(max_examples=40, deadline=None)
@given(images=st.integers(1, 30), batch_size=st.integers(1, 20), seed=st.integers(0, 2**40))
def test_every_epoch_shows_every_image_once(images, batch_size, seed):
    feed = in_memory(images, batch_size, PLAIN, seed)
    steps = -(-3 * images // batch_size)
    seen = torch.cat([feed(step)[1] for step in range(steps)])[: 3 * images]
    assert all(sorted(epoch.tolist()) == list(range(images)) for epoch in seen.split(images))


def test_epochs_and_seeds_differ_in_order():
    one, other = (torch.cat([in_memory(100, 50, seed=seed)(step)[1] for step in range(4)]) for seed in (0, 1))
    assert not torch.equal(one[:100], one[100:]) and not torch.equal(one, other)


def test_images_and_labels_belong_together():
    views, labels = in_memory(view=PLAIN)(3)
    assert torch.equal(torch.round((views * 0.5 + 0.5) * 255)[:, 0, 0, 0].long(), labels)
    assert views.dtype == torch.float32 and labels.dtype == torch.int64


def test_any_step_is_the_same_in_any_order():
    feed, order = in_memory(), [7, 2, 3, 900_000_000, 2, 0]
    batches = {step: in_memory()(step) for step in order}
    assert all(same(feed(step), batches[step]) for step in order)
    assert not torch.equal(feed(2)[0], feed(3)[0])


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_shares_are_parts_of_the_whole_batch(world):
    whole, labels = in_memory()(3)
    shares = [in_memory()(3, rank, world) for rank in range(world)]
    assert torch.equal(torch.cat([views for views, _ in shares]), whole)
    assert torch.equal(torch.cat([some for _, some in shares]), labels)


def test_an_image_set_is_fed_and_kept():
    scenes = data.load("scenes", limit=12, size=16)
    before = scenes.images.copy()
    feed = InMemory(scenes, 12, LIVELY, seed=3, device="cpu")
    views, labels = feed(0)
    assert views.shape == (12, 3, 16, 16) and sorted(labels.tolist()) == sorted(scenes.labels.tolist())
    assert feed.images_per_epoch == 12 and np.array_equal(scenes.images, before)
    assert feed.describe() == "scenes train: 12 images of 3x16x16 in memory on cpu, 12 a step, seed 3"
    order = torch.argsort(InMemory((feed.images, torch.arange(12)), 12, PLAIN, 3, "cpu")(0)[1])
    unmoved = InMemory(scenes, 12, View(mean=0.0, std=1.0), 3, "cpu")(0)[0][order]
    assert torch.equal(unmoved, scenes.tensor())


def test_several_crops_are_fed():
    (large, small), labels = in_memory(view=MultiCrop([LIVELY, PLAIN]))(0)
    assert large.shape == small.shape == (8, 3, 6, 6) and len(labels) == 8


def test_the_global_generators_are_left_alone():
    torch.manual_seed(0)
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    in_memory()(0)
    assert torch.equal(torch.get_rng_state(), before) and np.array_equal(np.random.get_state()[1], numpys)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_feeds_the_same():
    here, there = (InMemory(numbered(), 8, LIVELY, 0, device)(5) for device in ("cpu", "cuda"))
    torch.testing.assert_close(there[0].cpu(), here[0], atol=1e-4, rtol=0)
    assert torch.equal(there[1].cpu(), here[1])


WRONG = [
    (lambda: InMemory(numbered()[0], 8, PLAIN, 0), "takes an ImageSet, or two tensors (images, labels)"),
    (lambda: InMemory((numbered()[0].float(), numbered()[1]), 8, PLAIN, 0), "not torch.float32 (20, 3, 6, 6)"),
    (lambda: InMemory((numbered()[0][0], numbered()[1]), 8, PLAIN, 0), "not torch.uint8 (3, 6, 6)"),
    (lambda: InMemory((numbered()[0][:0], numbered()[1][:0]), 8, PLAIN, 0), "at least one, not torch.uint8 (0,"),
    (lambda: InMemory((numbered()[0], numbered()[1][:5]), 8, PLAIN, 0), "20 images takes as many integer labels"),
    (lambda: InMemory((numbered()[0], numbered()[1].float()), 8, PLAIN, 0), "not torch.float32 (20,)"),
    (lambda: InMemory((numbered()[0], numbered()[1] - 1), 8, PLAIN, 0), "integer labels of 0 or more"),
    (lambda: in_memory(batch_size=0), "batch_size must be a whole number of at least 1, not 0"),
    (lambda: in_memory(seed=-1), "seed must be a whole number of at least 0, not -1"),
    (lambda: in_memory()(-1), "step must be a whole number of at least 0, not -1"),
    (lambda: in_memory()(0.5), "not 0.5"),
    (lambda: in_memory()(0, 2, 2), "Of 2 processes the rank is 0 to 1, not 2"),
    (lambda: in_memory()(0, 0, 3), "8 images cannot be shared equally by 3 processes: choose a multiple"),
    (lambda: in_memory()(0, 0, 0), "world must be a whole number of at least 1, not 0"),
]


@pytest.mark.parametrize("wrong, sentence", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        wrong()
    assert "\n" not in str(told.value)


# Read from files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "set", classes=3, each=5)


def stream(folder, view=LIVELY, seed=0, workers=2, batch_size=4, **options):
    return Stream(reader(folder, size=8, **options), batch_size, view, seed, workers, "cpu")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_gives_what_memory_gives(folder, workers):
    loaded = data.load(f"folder:{folder}", size=8)
    memory, files = InMemory(loaded, 4, LIVELY, 5, "cpu"), stream(folder, seed=5, workers=workers)
    assert files.images_per_epoch == memory.images_per_epoch == 15
    for step in (0, 1, 2, 3, 4, 9, 10, 2):
        assert same(files(step), memory(step)), f"step {step}"
    for rank in range(2):
        assert same(files(6, rank, 2), memory(6, rank, 2))
    assert files.describe().startswith(f"15 images an epoch, read by {workers} workers for cpu, 4 a step")


def test_a_split_is_the_loaders(folder):
    loaded = data.load(f"folder:{folder}", split="val", size=8)
    assert same(stream(folder, split="val")(0), InMemory(loaded, 4, LIVELY, 0, "cpu")(0))


def test_a_stream_leaves_the_global_generator_alone(folder):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    stream(folder)(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_broken_picture_is_named(folder):
    (folder / "class1" / "02.png").write_bytes(b"no picture")
    feed = stream(folder)
    with pytest.raises(ValueError, match=r"class1/02\.png cannot be read \(.*\): replace or remove it\.") as told:
        for step in range(4):
            feed(step)
    assert "\n" not in str(told.value)
    picture(1).save(folder / "class1" / "02.png")
    assert len(feed(3)[1]) == 4, "mended, it goes on"


def test_pictures_of_two_sizes_are_told_apart(folder):
    picture(0, 30, 30).save(folder / "class1" / "02.png")
    feed = Stream(reader(folder), 15, PLAIN, 0, 2, "cpu")
    with pytest.raises(ValueError, match=r"all of one size.*give the reader a size"):
        feed(0)


def test_dead_workers_are_reported_and_replaced(folder):
    feed = stream(folder)
    expected = feed(1)
    feed(0)
    # torch tells of a dead worker at any moment, so that it may not be while we read.
    sentence = r"A process that reads pictures died \(.*\): .*fewer workers|DataLoader worker \(pid"
    with pytest.raises(RuntimeError, match=sentence) as told:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        for step in itertools.count(1):  # what was read ahead may still come
            feed(step)
    assert "\n" not in str(told.value)
    assert same(feed(1), expected)


WAITING = """
import signal, sys, threading
import torch
from vitlab.data.feeds import Stream
from vitlab.data.views import View

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        print("reading", flush=True)
        threading.Event().wait(1000)

try:
    Stream(Slow(), 4, View(), 0, 2, "cpu")(0)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_does_not_hang():
    """Ctrl-C reaches the program and its workers."""
    arguments = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", WAITING], **arguments) as running:
        assert running.stdout.readline() == running.stdout.readline() == "reading\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.communicate(timeout=60)[0] == "interrupted\n" and running.returncode == 0


def test_workers_end_with_their_feed_and_at_another_step(folder):
    def workers() -> set[int | None]:
        return {worker.pid for worker in multiprocessing.active_children()}

    feed = stream(folder)
    feed(8)
    first = workers()
    feed(9)
    assert workers() == first and len(first) == 2, "the next step is the same workers'"
    feed(4)
    assert len(workers() - first) == 2
    begun = time.monotonic()
    del feed
    while workers() and time.monotonic() < begun + 30:  # torch waits 5 s for a worker, and then ends it
        time.sleep(0.05)
    assert not workers()


def test_a_program_ends_while_workers_read(folder):
    """As a script does that trains and is done."""
    script = (
        "from vitlab.data.feeds import Stream, reader; from vitlab.data.views import View\n"
        f"feed = Stream(reader({str(folder)!r}, size=8), 4, View(), 0, 2, 'cpu'); print(len(feed(0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "4", "")


class Counting(IterableDataset):
    """Numbers dealt out to the workers, in an order that depends on the epoch."""

    def __init__(self, images=12, parts=4):
        self.images, self.parts, self.epoch = images, parts, 0

    def __len__(self):
        return self.images

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        for part in range(info.id, self.parts, info.num_workers):
            own = np.arange(part, self.images, self.parts)
            for i in np.random.default_rng(self.epoch).permutation(own).tolist():
                yield torch.full((3, 4, 4), i, dtype=torch.uint8), i


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")  # on two cores
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_stream_in_order_goes_on_at_any_step(workers):
    def feed():
        return Stream(Counting(), 4, LIVELY, 0, workers, "cpu")

    whole = feed()
    batches = [whole(step) for step in range(12)]
    for step in (0, 1, 3, 4, 8, 11):
        later = feed()
        assert same(later(step), batches[step]) and (step == 11 or same(later(step + 1), batches[step + 1]))
    shares = [feed()(7, rank, 2) for rank in range(2)]
    assert torch.equal(torch.cat([labels for _, labels in shares]), batches[7][1])
    assert torch.equal(torch.cat([views for views, _ in shares]), batches[7][0])
    if workers == 1:
        seen = torch.cat([labels for _, labels in batches]).split(12)
        assert all(sorted(epoch.tolist()) == list(range(12)) for epoch in seen) and not torch.equal(
            seen[0], seen[1]
        )


def test_a_worker_without_a_part_is_reported():
    feed = Stream(Counting(parts=1), 4, PLAIN, 0, 2, "cpu")
    with pytest.raises(ValueError, match="no more workers than it has files"):
        for step in range(2):
            feed(step)


class Wrong(Dataset):
    def __init__(self, sample, length=4):
        self.sample, self.length = sample, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.sample


BYTES = torch.zeros(3, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    "dataset, sentence",
    [
        (Wrong((BYTES.float(), 0)), "uint8 tensors (channels, height, width), not torch.float32 (3, 4, 4)"),
        (Wrong((np.zeros(3), 0)), "not <class 'numpy.ndarray'>"),
        (Wrong((BYTES, 0.5)), "a whole number as a label, not 0.5"),
        (Wrong((BYTES, None)), "not None"),
        (Wrong((BYTES, 0), length=0), "a length of 1 or more, and Wrong has none"),
    ],
)
def test_a_wrong_data_set_is_told(dataset, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Stream(dataset, 2, PLAIN, 0, 0, "cpu")(0)


def test_a_stream_in_order_needs_a_worker():
    with pytest.raises(ValueError, match="needs at least one worker: set workers=1"):
        Stream(Counting(), 2, PLAIN, 0, 0, "cpu")


# Where the pictures come from


def test_what_cannot_be_read_is_told(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere"):
        reader(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no split 'test'"):
        reader(folder, split="test")
    with pytest.raises(ValueError, match="scenes does not lie in folders: load it into memory"):
        reader("scenes")
    with pytest.raises(ValueError, match="no option 'num_samples'"):
        reader(folder, num_samples=3)
    with pytest.raises(ValueError, match="size must be a whole number"):
        reader(folder, size=0)


@pytest.mark.parametrize(
    "name, package", [("wds/x", "webdataset"), ("hfds/x", "datasets"), ("tfds/x", "tensorflow_datasets")]
)
def test_a_missing_package_is_named(name, package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"{name} is read by the package {package}.*pip install {package}\\."):
        reader(name, split="train")


def test_a_tar_file_is_read_in_any_order(tmp_path, folder):
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(folder, arcname="set")
    files, packed = stream(folder), stream(tmp_path / "set.tar")
    assert all(same(files(step), packed(step)) for step in (0, 1, 5))


@pytest.mark.parametrize("training", [False, True])
def test_webdataset_is_read_through_timm(tmp_path, training):
    for shard in range(2):
        with tarfile.open(tmp_path / f"set-{shard}.tar", "w") as tar:
            for i in range(8 * shard, 8 * shard + 8):
                encoded = io.BytesIO()
                picture(i, 9, 9).save(encoded, "png")
                for name, content in ((f"{i:04d}.png", encoded.getvalue()), (f"{i:04d}.cls", str(i).encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))

    def feed():
        opened = reader("wds/set", "set-{0..1}.tar|16", root=str(tmp_path), is_training=training, batch_size=4)
        return Stream(opened, 4, PLAIN, 0, 2, "cpu")

    whole = feed()
    batches = [whole(step) for step in range(8)]
    assert whole.images_per_epoch == 16
    for epoch in range(2):
        assert sorted(torch.cat([labels for _, labels in batches[4 * epoch : 4 * epoch + 4]]).tolist()) == list(
            range(16)
        )
    views, labels = batches[3]
    for view, label in zip(views, labels.tolist(), strict=True):
        expected = torch.tensor(np.asarray(picture(label, 9, 9))).permute(2, 0, 1) / 255 * 2 - 1
        torch.testing.assert_close(view, expected)
    later = feed()
    assert same(later(5), batches[5]) and same(later(6), batches[6])
