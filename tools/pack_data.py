"""Pack class folders into one small file for a machine without a network, and unpack them there.

  python tools/pack_data.py pack $VITLAB_DATA/cifar100 packs/cifar100.zip --mib 60 --split train=200,val=50
  python tools/pack_data.py unpack packs/cifar100.zip $VITLAB_DATA

Packing keeps every pixel as vitlab.data.load reads it: a picture is stored as lossless WebP, or as its own file
where that is smaller, as a JPEG nearly always is. Nothing is compressed with a loss, since a record made on other
pixels under the same name would be wrong. The names alone decide which images of a class are taken, and a smaller
choice lies inside a larger one. A set that does not fit is not packed; the message says how much of it would fit.

Unpacking checks the whole pack first, then makes <set>/<split>/<class>/<file>, whole or not at all. A second time
it changes nothing, and a folder that holds other pictures is left as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import os
import signal
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from vitlab.data import archives, folders
from vitlab.data.pixels import Unreadable, decode

ABOUT = "pack.json"  # the pack's own entry: the set's name, its counts, and a sum over all images
LARGEST_MIB = 2000  # a pack is made in memory
LARGEST_SIDE = 16383  # pixels, of a WebP
HEADERS, END = 30 + 46, 22 + 76  # bytes that a zip spends on an entry, beside twice its name, and at its end


def pack(root: Path, target: Path, mib: float, limits: Mapping[str, int | None] | None = None) -> str:
    """Pack the class folders at `root` into `target`, of at most `mib` MiB; returns a line about it.

    `limits` names the splits, each with the most images a class, or None for all; without it all splits are taken
    whole. Raises `ValueError`, having written nothing, for a set that does not fit or cannot be packed.
    """
    if not 0 < mib <= LARGEST_MIB:
        raise ValueError(f"--mib takes more than 0 and at most {LARGEST_MIB}, not {mib:g}.")
    if target.is_dir():
        raise ValueError(f"{target} is a folder: name the file that is to be written, such as {target}/pack.zip.")
    root = Path(os.path.abspath(root))
    known = folders.splits(root)
    if known == folders.WHOLE and not all((root / split).is_dir() for split in known):
        known = ("all",)  # nobody has divided this set; unpacked as `all`, it is divided as it would be here
    limits = dict.fromkeys(known) if limits is None else limits
    if unknown := sorted(set(limits) - set(known)):
        raise ValueError(f"{root} has no split {unknown[0]!r}: it has {', '.join(known)}.")
    listings = {split: folders.list_split(root, split) for split in limits}
    queue = sorted(job for split, most in limits.items() for job in _chosen(split, listings[split].files, most))
    of = {split: len(listing.files) for split, listing in listings.items()}
    counts = Counter(split for _, split, _ in queue)
    about = {"format": 1, "set": root.name, "images": counts, "of": of, "sha256": "0" * 64}
    names, sums = {}, {}
    buffer, size = io.BytesIO(), END + HEADERS + 2 * len(ABOUT) + len(json.dumps(about))
    with (
        zipfile.ZipFile(buffer, "w") as archive,
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(total=len(queue), desc="packing images", leave=False, disable=None) as bar,
    ):
        # One image of every class, then another of every class: where the room ends, so many of each class fit.
        for rank, group in itertools.groupby(queue, key=lambda job: job[0]):
            jobs = [(split, file) for _, split, file in group]
            found = pool.map(_smallest, [listings[split].root / file for split, file in jobs])
            for (split, file), (picture, data) in zip(jobs, found, strict=True):
                name = names[split, file] = f"{root.name}/{split}/{file.split('/')[0]}/{picture}"
                if not _is_portable(name):
                    raise ValueError(f"{name!r} is no name that every machine takes: rename it.")
                if name in sums:
                    raise ValueError(f"Two files would both become {name!r}: rename one.")
                sums[name] = _hash(data)
                archive.writestr(_entry(name), data)
                size += HEADERS + 2 * len(name.encode()) + len(data)
            if size > mib * 2**20:
                raise ValueError(_too_large(root, mib, rank, queue))
            bar.update(len(jobs))
        for split, listing in listings.items():
            ordered = [names[split, file].split("/") for file in listing.files if (split, file) in names]
            if moved := next((b for a, b in itertools.pairwise(ordered) if a > b), None):
                raise ValueError(f"A file of {listing.root} would change places as {moved[3]!r}: rename it.")
        archive.writestr(_entry(ABOUT), json.dumps(about | {"sha256": _sum(sums)}))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(buffer.getbuffer())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return f"{target}: {_told(about)}, {target.stat().st_size / 2**20:.1f} MiB"


def unpack(source: Path, root: Path) -> str:
    """Unpack `source` into the folder of its set in `root`, whole or not at all; returns a line about it.

    Raises `ValueError`, having written nothing, for a file that is no whole pack or would write elsewhere, and
    where the folder holds other pictures already.
    """
    if not source.is_file():
        raise ValueError(f"There is no file {source}: give the pack that was carried here.")
    about, told = _read(source)
    folder = root / about["set"]
    if folder.exists() or folder.is_symlink():
        files = {path.relative_to(root).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        seen = {name: path for name, path in files.items() if "/." not in name}
        count = sum(about["images"].values())
        if len(seen) == count and about["sha256"] == _sum({k: _hash(p.read_bytes()) for k, p in seen.items()}):
            return f"{folder} is there already, with the same pictures: nothing to do"
        raise ValueError(
            f"{folder} holds other pictures than {source} ({len(seen):,} files, the pack has {count:,}): move it "
            "away, or unpack into another folder."
        )
    archives.unpack(source, folder, lambda room: room / about["set"], max_bytes=source.stat().st_size)
    return f"{folder}: {told}"


def _chosen(split: str, files: Sequence[str], most: int | None) -> Iterator[tuple[int, str, str]]:
    """At most `most` files of each class, as place in the class, split, `<class>/<file>`.

    The order is that of the sums of their names; without endings, so that a pack of a pack takes the same images.
    """
    seen: Counter[str] = Counter()
    for file in sorted(files, key=lambda file: _hash(os.fsencode(file.rpartition(".")[0]))):
        label = file.split("/")[0]
        if most is None or seen[label] < most:
            yield seen[label], split, file
        seen[label] += 1


def _smallest(path: Path) -> tuple[str, bytes]:
    """The picture at `path` as name and bytes: lossless WebP, or the file itself where that is no larger."""
    own = path.read_bytes()
    try:
        pixels = decode(path)
    except Unreadable as error:
        raise ValueError(f"{path} cannot be read ({error}): replace or remove it.") from error
    if max(pixels.shape) > LARGEST_SIDE:
        return path.name, own
    webp = io.BytesIO()
    # More effort (method 3 to 6) takes up to a hundred times as long, and pictures of 32 pixels get no smaller.
    Image.fromarray(pixels).save(webp, "WEBP", lossless=True, quality=75, method=2)
    if webp.tell() >= len(own) or not np.array_equal(np.asarray(Image.open(webp)), pixels):
        return path.name, own
    return f"{path.stem}.webp", webp.getvalue()


def _too_large(root: Path, mib: float, fit: int, queue: Sequence[tuple[int, str, str]]) -> str:
    if fit == 0:
        return f"Not even one image of each class of {root.name} fits into {mib:g} MiB: give a larger --mib."
    largest = {split: rank + 1 for rank, split, _ in queue}
    advice = ",".join(f"{split}={min(fit, count)}" for split, count in sorted(largest.items()))
    return f"{root.name} does not fit into {mib:g} MiB: pack {fit} images a class, with --split {advice}."


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry of a plain file without a time, so that the same pictures give the same pack."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = 0o100644 << 16
    return entry


def _read(source: Path) -> tuple[dict[str, Any], str]:
    """What the pack says of itself, and in words, after every byte of its images has been checked."""
    try:
        with zipfile.ZipFile(source) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("its entries have been compressed")
            about = json.loads(archive.read(ABOUT))
            told = _told(about)
            names = [entry.filename for entry in archive.infolist() if entry.filename != ABOUT]
            sums = {name: _hash(archive.read(name)) for name in names}
            if about["format"] != 1 or about["sha256"] != _sum(sums):
                raise ValueError("its images are not those that were packed")
            if about["images"] != Counter(name.split("/")[1] for name in names):
                raise ValueError("its counts are not those of its images")
    # A damaged zip raises whatever its parser met: BadZipFile, KeyError, struct.error, UnicodeDecodeError ...
    except Exception as error:
        raise ValueError(f"{source} is no whole pack ({error}): make it again, or carry it here again.") from error
    for name in names:
        if not _is_portable(name) or name.split("/")[0] != about["set"]:
            raise ValueError(f"{source} holds {name!r}, not a <set>/<split>/<class>/<file>: it was not unpacked.")
    return about, told


def _is_portable(name: str) -> bool:
    """Whether it is <set>/<split>/<class>/<file>, nothing hidden, and a name that every machine takes."""
    parts = name.split("/")
    visible = all(part and not part.startswith(".") for part in parts)
    return len(parts) == 4 and visible and "\\" not in name and name.isprintable()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sum(sums: Mapping[str, str]) -> str:
    """One sum over the names and sums of all images, whatever their order."""
    return _hash("".join(f"{sums[name]} {name}\n" for name in sorted(sums)).encode())


def _told(about: Mapping[str, Any]) -> str:
    counts = about["images"].items()
    return ", ".join(f"{split} {count:,} of {about['of'][split]:,} images" for split, count in counts)


def _limits(text: str) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for part in text.split(","):
        split, equals, most = part.partition("=")
        if not split or split in limits or (equals and not (most.isdecimal() and int(most))):
            raise argparse.ArgumentTypeError(f"expected train=200,val=50, or train=200,val, not {text!r}")
        limits[split] = int(most) if equals else None
    return limits


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="pack|unpack")
    packing = commands.add_parser("pack", help="pack class folders")
    packing.add_argument(
        "source", type=Path, help="the set: <split>/<class>/<file>, or <class>/<file>, in a folder"
    )
    packing.add_argument("target", type=Path, help="the zip file to write; one that is there is replaced")
    packing.add_argument("--mib", type=float, default=60, help="the most it may take, in MiB (default: 60)")
    text = "these splits alone, at most N images a class, or all where =N is left out (default: everything)"
    packing.add_argument("--split", type=_limits, metavar="SPLIT=N,...", help=text)
    unpacking = commands.add_parser("unpack", help="unpack a pack")
    unpacking.add_argument("source", type=Path, help="the zip file that pack wrote")
    unpacking.add_argument("target", type=Path, help="where the set's folder is to appear, such as $VITLAB_DATA")
    given = parser.parse_args(arguments)
    try:
        if given.command == "pack":
            print(pack(given.source, given.target, given.mib, given.split))
        else:
            print(unpack(given.source, given.target))
    except KeyboardInterrupt:
        print("\nInterrupted: nothing half done was left.", file=sys.stderr)
        return 130
    except (OSError, RuntimeError, ValueError) as error:
        of_disk = isinstance(error, OSError) and error.errno is not None
        print(f"{error}: nothing half done was left; run it again." if of_disk else error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job that is told to stop cleans up as well
    sys.exit(main())
