"""Where the book says it lives, and what its caches are keyed on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import build_book
import pytest

PLACEHOLDER = "https://github.com/OWNER/hungry-transformer"

REMOTES = {
    "https://github.com/someone/hungry.git": "https://github.com/someone/hungry",
    "https://github.com/someone/hungry/": "https://github.com/someone/hungry",
    "https://user:secret@github.com/someone/hungry.git": "https://github.com/someone/hungry",
    "git@github.com:someone/hungry.git": "https://github.com/someone/hungry",
    "ssh://git@codeberg.org:22/someone/hungry.git": "https://codeberg.org/someone/hungry",
    "https://gitlab.com/group/sub/hungry": "https://gitlab.com/group/sub/hungry",
    "/srv/git/hungry.git": None,
    "../elsewhere": None,
    "file:///srv/git/hungry.git": None,
    "http://127.0.0.1:3000/someone/hungry.git": None,
    "https://10.0.0.7/someone/hungry.git": None,
    "https://localhost/someone/hungry": None,
}


def repository(folder: Path, remote: str | None = None) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    if remote:
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", remote], check=True)
    return folder


@pytest.mark.parametrize("remote", REMOTES)
def test_a_hosted_remote_is_the_address(tmp_path: Path, remote: str) -> None:
    expected = REMOTES[remote]
    found = build_book.repository_address(repository(tmp_path, remote), {}, PLACEHOLDER)
    assert found == ((expected, True) if expected else (PLACEHOLDER, False))


def test_the_ci_goes_before_the_remote(tmp_path: Path) -> None:
    root = repository(tmp_path, "https://github.com/someone/hungry.git")
    environment = {"GITHUB_REPOSITORY": "a/b", "GITHUB_SERVER_URL": "https://git.example.org"}
    assert build_book.repository_address(root, environment, PLACEHOLDER) == ("https://git.example.org/a/b", True)


def test_no_repository_and_no_remote_leave_the_placeholder(tmp_path: Path) -> None:
    assert build_book.repository_address(tmp_path, {}, PLACEHOLDER) == (PLACEHOLDER, False)
    assert build_book.repository_address(repository(tmp_path), {}, PLACEHOLDER) == (PLACEHOLDER, False)


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, ""),
        ({"GITHUB_REPOSITORY": "Some/hungry"}, "https://some.github.io/hungry/"),
        ({"GITHUB_REPOSITORY": "Some/some.github.io"}, "https://some.github.io/"),
        ({"GITHUB_REPOSITORY": "a/b", "GITHUB_SERVER_URL": "https://git.example.org"}, ""),
        ({"GITHUB_REPOSITORY": "a/b", "BOOK_URL": "https://book.example.org"}, "https://book.example.org/"),
    ],
)
def test_the_site_address_is_known_under_the_ci_alone(environment: dict[str, str], address: str) -> None:
    assert build_book.site_address(environment) == address


def key(root: Path, scale: str = "laptop") -> str:
    return build_book.execution_key(root, build_book.sources(root), scale)


def test_the_cache_is_keyed_on_code_data_scale_and_lock_file(tmp_path: Path) -> None:
    for name in ("vitlab/show/plots.py", "data/a/laptop/seed-000.npz", "requirements.lock", "book/read.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    keys = {key(tmp_path), key(tmp_path, "smoke")}
    for name in ("vitlab/show/plots.py", "data/a/laptop/seed-000.npz", "requirements.lock"):
        (tmp_path / name).write_text("2")
        keys.add(key(tmp_path))
    (tmp_path / "data/a/laptop/seed-000.npz").rename(tmp_path / "data/a/laptop/seed-001.npz")
    keys.add(key(tmp_path))
    assert len(keys) == 6
    (tmp_path / "book/read.md").write_text("2")
    (tmp_path / "vitlab/__pycache__").mkdir()
    (tmp_path / "vitlab/__pycache__/plots.py").write_text("2")
    assert key(tmp_path) in keys


def test_sources_are_what_git_does_not_ignore(tmp_path: Path) -> None:
    root = repository(tmp_path)
    for name in (
        "book/read.md",
        "tests/test_a.py",
        "_build/html/index.html",
        ".gitignore",
        "data/a/smoke/seed-000.npz",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("_build/\n")
    listed = [path.relative_to(root).as_posix() for path in build_book.sources(root)]
    assert listed == [".gitignore", "book/read.md"]
    for path in (root / ".git").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / ".git").rename(tmp_path / ".hidden")
    assert [path.relative_to(root).as_posix() for path in build_book.sources(root)] == [
        ".gitignore",
        "book/read.md",
    ]


def test_only_the_newest_caches_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        build_book._choose_cache(tmp_path / str(number))
    build_book._choose_cache(tmp_path / "4")
    build_book._choose_cache(tmp_path / "6")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5", "6"]
