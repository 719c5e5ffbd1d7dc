"""Build the book into _build/html; with nothing changed since the last finished build, return at once.

Chapters are executed through a cache that is valid for one state of vitlab, data, scale and lock file. A cell
that raises makes the build fail; with --strict, or where CI=true, so does every warning: a broken link, a figure
without words, a citation that is not in the bibliography.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
STAMP = ".finished.json"  # in the site's folder: what the last finished build was made from
KEPT_CACHES = 3  # so that going back to another scale, or undoing a change, costs nothing
# Extensions that Jupyter Book always loads and this book never uses; each adds scripts to every page.
UNUSED = {
    "sphinx.ext.intersphinx",
    "sphinx_comments",
    "sphinx_jupyterbook_latex",
    "sphinx_multitoc_numbering",
    "sphinx_thebe",
    "sphinx_togglebutton",
}
# Folders whose files cannot change a page.
NO_SOURCE = {"tests", "bench", ".ci", ".github"}


def repository_address(root: Path, environment: Mapping[str, str], placeholder: str) -> tuple[str, bool]:
    """Where the repository is published, and whether that is known.

    It is taken from the CI's environment, else from the git remote `origin` if that is a hosted one, else it is
    the placeholder of _config.yml.
    """
    if name := environment.get("GITHUB_REPOSITORY"):
        return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com').rstrip('/')}/{name}", True
    remote = _git(root, "remote", "get-url", "origin").strip()
    # git@host:owner/name and ssh://git@host:22/owner/name say the same as https://host/owner/name.
    hosted = re.fullmatch(
        r"(?:https://(?:[^@/\s]+@)?|ssh://(?:[^@/\s]+@)?|[\w.-]+@)"
        r"(?P<host>[\w-]+(?:\.[\w-]+)*\.[a-z]{2,})(?::\d+)?[:/](?P<name>\S+/\S+?)(?:\.git)?/?",
        remote,
    )
    return (f"https://{hosted['host']}/{hosted['name']}", True) if hosted else (placeholder, False)


def site_address(environment: Mapping[str, str]) -> str:
    """Where the site is published (BOOK_URL, else GitHub Pages in GitHub's CI); empty where that is not known."""
    if given := environment.get("BOOK_URL"):
        return given.rstrip("/") + "/"
    owner, _, name = environment.get("GITHUB_REPOSITORY", "").partition("/")
    if not name or environment.get("GITHUB_SERVER_URL", "https://github.com") != "https://github.com":
        return ""
    host = f"https://{owner.lower()}.github.io/"
    return host if name.lower() == f"{owner.lower()}.github.io" else f"{host}{name}/"


def sources(root: Path) -> list[Path]:
    """Every file a page may be made from: all that git does not ignore, or all that is not hidden without git."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    files = [root / name for name in listed.split("\0") if name]
    if not listed:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith((".", "_build"))]
            files += [Path(folder, name) for name in names]
    kept = []
    for file in set(files):
        parts = file.relative_to(root).parts
        computed = "__pycache__" in parts or (parts[0] == "data" and "smoke" in parts)
        if not computed and parts[0] not in NO_SOURCE and file.is_file():
            kept.append(file)
    return sorted(kept)


def digest(root: Path, files: Iterable[Path], *facts: str) -> str:
    """A sha256 over the names and contents of files, and over some facts."""
    total = hashlib.sha256()
    for fact in facts:
        total.update(f"{fact}\0".encode())
    for file in files:
        total.update(f"{file.relative_to(root).as_posix()}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def execution_key(root: Path, files: Iterable[Path], scale: str) -> str:
    """What executed outputs depend on besides the cells: vitlab, data, scale, the lock file and Python."""
    kept = []
    for file in files:
        name = file.relative_to(root)
        code = name.parts[0] == "vitlab" and name.suffix == ".py"
        if code or name.parts[0] == "data" or name.as_posix() == "requirements.lock":
            kept.append(file)
    return digest(root, kept, scale, platform.python_version())[:24]


def installed() -> str:
    """The installed distributions, from the names of their folders."""
    return "\n".join(sorted(p.name for place in sys.path for p in Path(place or ".").glob("*.dist-info")))


def build(root: Path, scale: str, strict: bool, force: bool, verbose: bool = False) -> int:
    """Build the book of a source folder; the exit status."""
    began = time.monotonic()
    out = root / "_build" / "html"
    stamp = out / STAMP
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    address, known = repository_address(root, os.environ, settings["repository"]["url"])
    site = site_address(os.environ)
    if not known:
        print(
            f"The repository's address is not known, so links to it say {address}: "
            "add a git remote `origin`, or set GITHUB_REPOSITORY=owner/name."
        )
    files = sources(root)
    inputs = digest(root, files, scale, address, site, installed())
    last = _read_stamp(stamp)
    if not force and last["inputs"] == inputs and not (strict and last["warnings"]):
        print(f"Nothing has changed: the book stands in {out / 'index.html'} ({time.monotonic() - began:.1f} s).")
        return 0

    # Warnings are given only for pages that are read anew: after a build that did not end clean, read all of them.
    fresh = force or last["inputs"] == "" or last["warnings"] > 0
    shutil.rmtree(out, ignore_errors=True)
    cache = root / "_build" / ".cache" / execution_key(root, files, scale)
    if force:
        shutil.rmtree(cache, ignore_errors=True)
    _choose_cache(cache)
    print("Reading pages and running chapters that have changed:", flush=True)
    os.environ |= {
        "VITLAB_SCALE": scale,
        # What the book prints is recorded; at smoke scale, which is never kept, it is computed.
        "VITLAB_RECORD": "auto" if scale == "smoke" else "load",
        "VITLAB_STATIC": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "IPYTHONDIR": str(_quiet_kernels(root / "_build" / ".ipython")),
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel is this environment's
    }
    sys.path.insert(0, str(root))  # for the API page

    status, warnings, pages = _run_sphinx(root, out, _overrides(address, site, cache), strict, fresh, verbose)
    if status == 0:
        stamp.write_text(json.dumps({"inputs": inputs, "warnings": warnings}), encoding="utf-8")
        took = f"{pages} pages, {warnings} warnings, {time.monotonic() - began:.0f} s"
        print(f"The book stands in {out / 'index.html'} ({took}).")
    else:
        print(f"The book did not build ({warnings} warnings or errors above).", file=sys.stderr)
    return status


def _run_sphinx(
    root: Path, out: Path, overrides: dict[str, Any], strict: bool, fresh: bool, verbose: bool
) -> tuple[int, int, int]:
    """Run Sphinx on Jupyter Book's configuration; exit status, number of warnings, number of pages."""
    from jupyter_book.config import get_final_config
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.console import color_terminal, nocolor
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    if not color_terminal():
        nocolor()
    config, _ = get_final_config(
        user_yaml=root / "_config.yml", cli_config=overrides, sourcedir=root, raise_on_invalid=True
    )
    config["extensions"] = [name for name in config["extensions"] if name not in UNUSED]
    config.pop("comments_config")
    if config["html_baseurl"]:
        config["extensions"].append("sphinx_sitemap")
        config["sitemap_url_scheme"] = "{link}"
    if urlsplit(config["html_theme_options"]["repository_url"]).hostname != "github.com":
        config["html_theme_options"]["launch_buttons"].pop("colab_url", None)
    try:
        with patch_docutils(None), docutils_namespace():
            app = Sphinx(
                srcdir=root,
                confdir=None,
                outdir=out,
                doctreedir=root / "_build" / ".doctrees",
                buildername="html",
                confoverrides=config,
                status=sys.stdout if verbose else None,
                freshenv=fresh,
                warningiserror=strict,
                keep_going=True,
            )
            app.connect("source-read", lambda app, page, text: print(f"  {page}", flush=True))
            app.build()
    except SphinxError as error:
        print(f"{error.category}: {error}", file=sys.stderr)
        return 2, 1, 0
    first = f"{app.config.master_doc}.html"
    (out / "index.html").write_text(
        f'<!DOCTYPE html>\n<html lang="{app.config.language}"><head><meta charset="utf-8">'
        f"<title>{app.config.html_title}</title>"
        f'<meta http-equiv="refresh" content="0; url={first}"></head>'
        f'<body><main><h1>{app.config.html_title}</h1><p><a href="{first}">Read the book</a></p></main></body>'
        "</html>\n",
        encoding="utf-8",
    )
    raised = [
        page
        for page, facts in getattr(app.env, "nb_metadata", {}).items()
        if not facts.get("exec_data", {"succeeded": True})["succeeded"]
    ]
    for page in sorted(raised):
        print(f"A cell of {page} raised: its traceback stands above.", file=sys.stderr)
    return app.statuscode or int(bool(raised)), app._warncount, len(app.env.found_docs)


def _overrides(address: str, site: str, cache: Path) -> dict[str, Any]:
    """What only the build knows of the configuration."""
    return {
        "latex_individualpages": False,
        "external_toc_path": "_toc.yml",
        "nitpicky": True,
        "html_baseurl": site,
        "ogp_site_url": site,
        "nb_execution_cache_path": str(cache),
        "html_theme_options": {"repository_url": address, **_provider(address)},
    }


def _provider(address: str) -> dict[str, str]:
    """The kind of forge at an address whose name does not say it."""
    host = urlsplit(address).hostname or ""
    return {} if re.search("github|gitlab|bitbucket", host) else {"repository_provider": "github"}


def _quiet_kernels(folder: Path) -> Path:
    """A folder of IPython settings for the build: a reader's own start-up files stay out of the book."""
    settings = folder / "profile_default" / "ipython_kernel_config.py"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('c.IPKernelApp.log_level = "ERROR"\n', encoding="utf-8")
    return folder


def _choose_cache(cache: Path) -> None:
    """Make a cache the newest one and remove all but the newest few."""
    cache.mkdir(parents=True, exist_ok=True)
    os.utime(cache)
    caches = sorted(cache.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in caches[KEPT_CACHES:]:
        shutil.rmtree(old)


def _read_stamp(stamp: Path) -> dict[str, Any]:
    try:
        return json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"inputs": "", "warnings": 0}


def _git(root: Path, *arguments: str) -> str:
    """What git prints, or "" where there is no git or no repository of this folder's own."""
    try:
        top = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True
        )
        if Path(top.stdout.strip()).resolve() != root.resolve():
            return ""
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=os.environ.get("CI") == "true",
        help="fail on every warning, not only on a raising cell (the default where CI=true)",
    )
    parser.add_argument(
        "--scale", choices=["smoke", "laptop", "paper"], default="laptop", help="what chapters run at"
    )
    parser.add_argument("--force", action="store_true", help="build and execute everything anew")
    parser.add_argument(
        "--source", type=Path, default=ROOT, help="the folder of _config.yml (default: this repository)"
    )
    parser.add_argument("--verbose", action="store_true", help="show what Sphinx says of its progress")
    given = parser.parse_args(arguments)
    try:
        return build(given.source.resolve(), given.scale, given.strict, given.force, given.verbose)
    except KeyboardInterrupt:
        print(
            "\nInterrupted: chapters that were executed stay in the cache; run it again to go on.", file=sys.stderr
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
