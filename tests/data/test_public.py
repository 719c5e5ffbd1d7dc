"""The public sets, from archives of the published layout on a local server; pickles that would run code."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from pictures import picture

from vitlab import data
from vitlab.data import public


def python2_pickle(entries: dict[str, np.ndarray | list]) -> bytes:
    """A dictionary as Python 2's cPickle wrote it in 2009: byte strings, numpy's old addresses."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def array(a: np.ndarray) -> bytes:
        build = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
            + integer(0)
            + b"\x85"
            + string(b"b")
            + b"tR"
        )
        kind = b"cnumpy\ndtype\n(" + string(b"u1") + integer(0) + integer(1) + b"tR"
        state = b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
        shape = b"(" + b"".join(integer(n) for n in a.shape) + b"t"
        return build + b"(" + integer(1) + shape + kind + state + b"\x89" + string(a.tobytes()) + b"tb"

    def listed(values: list) -> bytes:
        return b"](" + b"".join(integer(v) if isinstance(v, int) else string(v.encode()) for v in values) + b"e"

    body = b""
    for key, value in entries.items():
        body += string(key.encode()) + (array(value) if isinstance(value, np.ndarray) else listed(value))
    return b"\x80\x02}(" + body + b"u."


def pack(kind: str, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, body in files.items():
                archive.writestr(name, body)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, body in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def png(seed: int, side: int = 8) -> bytes:
    out = io.BytesIO()
    picture(seed, side, side).save(out, "png")
    return out.getvalue()


@pytest.fixture
def publish(server, monkeypatch):
    """Serve an archive in the place of a published one."""

    def serve(name: str, body: bytes) -> None:
        file = public.SOURCES[name].urls[0].rsplit("/", 1)[-1]
        server.files[file] = body
        source = replace(
            public.SOURCES[name], urls=(server.url(file),), known_hash="md5:" + hashlib.md5(body).hexdigest()
        )
        monkeypatch.setitem(public.SOURCES, name, source)

    return serve


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def test_cifar10(publish, server):
    parts = {f"data_batch_{i}": rows(4, i) for i in range(1, 6)} | {"test_batch": rows(3, 9)}
    files = {
        f"cifar-10-batches-py/{n}": python2_pickle({"data": r, "labels": [i % 10 for i in range(len(r))]})
        for n, r in parts.items()
    }
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    files["cifar-10-batches-py/batches.meta"] = python2_pickle({"label_names": names})
    publish("cifar10", pack("gz", files))
    train, test = data.load("cifar10"), data.load("cifar10", split="held_out")
    assert (len(train), len(test), test.split) == (20, 3, "test") and train.classes == tuple(names)
    assert np.array_equal(train.images[4], parts["data_batch_2"][0].reshape(3, 32, 32).transpose(1, 2, 0))
    assert train.labels.tolist() == [0, 1, 2, 3] * 5 and len(server.ranges) == 1
    assert data.load("cifar10", size=16, limit=4).images.shape == (4, 16, 16, 3)


def test_cifar100_has_the_fine_labels(publish):
    body = {"data": rows(5, 0), "coarse_labels": [0] * 5, "fine_labels": [4, 3, 2, 1, 0]}
    meta = {"coarse_label_names": ["x"], "fine_label_names": list("abcde")}
    files = {"train": python2_pickle(body), "test": python2_pickle(body), "meta": python2_pickle(meta)}
    publish("cifar100", pack("gz", {f"cifar-100-python/{name}": raw for name, raw in files.items()}))
    s = data.load("cifar100")
    assert s.labels.tolist() == [4, 3, 2, 1, 0] and s.classes == tuple("abcde")


def test_tinyimagenet(publish):
    root, wnids = "tiny-imagenet-200", ["n02", "n01"]
    files = {
        f"{root}/wnids.txt": b"n02\nn01\n",
        f"{root}/words.txt": b"n01\tgoldfish, Carassius auratus\nn02\tpolar bear, ice bear\nn03\tunused\n",
        f"{root}/val/val_annotations.txt": b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n",
        f"{root}/val/images/val_0.JPEG": png(0),
        f"{root}/val/images/val_1.JPEG": png(1),
        f"{root}/test/images/test_0.JPEG": png(2),
    }
    for k, wnid in enumerate(wnids):
        files[f"{root}/train/{wnid}/{wnid}_boxes.txt"] = b"x"
        files |= {f"{root}/train/{wnid}/images/{wnid}_{i}.JPEG": png(10 * k + i) for i in range(3)}
    publish("tinyimagenet", pack("zip", files))
    train, val = data.load("tinyimagenet"), data.load("tinyimagenet", split="held_out")
    assert train.classes == val.classes == ("n01_goldfish", "n02_polar_bear")
    assert len(train) == 6 and val.labels.tolist() == [0, 1]
    assert np.array_equal(val.images[1], np.asarray(picture(0, 8, 8)))


def test_ucmerced(publish):
    names = ["agricultural", "airplane"]
    files = {f"UCMerced_LandUse/Images/{c}/{c}{i:02d}.tif": png(i) for c in names for i in range(5)}
    publish("ucmerced", pack("zip", files))
    assert data.splits("ucmerced") == ("all", "train", "val")
    assert len(data.load("ucmerced")) == 10 and len(data.load("ucmerced", split="val")) == 2


def test_a_corrupted_archive_is_one_sentence_and_leaves_nothing(publish, cache):
    body = pack("gz", {"cifar-100-python/train": rows(9, 0).tobytes()})
    publish("cifar100", body[: len(body) // 2])
    with pytest.raises(RuntimeError, match="corrupted"):
        data.load("cifar100")
    assert not (cache / "cifar100").exists() and not list(cache.glob("*.partial"))


def test_offline_names_the_set(server, publish):
    publish("ucmerced", b"")
    server.status = 503
    with pytest.raises(FileNotFoundError, match=r"ucmerced is not on this machine .* VITLAB_DATA"):
        data.load("ucmerced")


def test_the_published_sums_and_addresses_are_well_formed():
    for name, source in public.SOURCES.items():
        kind, digest = source.known_hash.split(":")
        assert kind == "md5" and len(digest) == 32 and int(digest, 16)
        assert all(url.startswith("http") for url in source.urls) and name in data.names()


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/vitlab-was-here",)


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps(Evil()),
        pickle.dumps({"data": Evil()}, protocol=2),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(S'x'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    ],
)
def test_a_pickle_that_asks_for_code_is_refused(tmp_path, body, monkeypatch):
    called = []
    monkeypatch.setattr("os.system", called.append)
    path = tmp_path / "train"
    path.write_bytes(body)
    with pytest.raises(ValueError, match=r"no plain data file .*it asks for"):
        public.unpickle(path)
    assert called == []


@pytest.mark.parametrize("body", [b"", b"\x80", b"garbage", pickle.dumps({"a": list(range(50))})[:30]])
def test_a_broken_pickle_is_one_sentence(tmp_path, body):
    (tmp_path / "train").write_bytes(body)
    with pytest.raises(ValueError, match="no plain data file"):
        public.unpickle(tmp_path / "train")


def test_a_missing_batch_is_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="is missing: delete its folder"):
        public.unpickle(tmp_path / "train")
