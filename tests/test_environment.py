"""environment.yml, Colab's pins and the workflows say the same as pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
# Where conda-forge calls a package otherwise than PyPI. Its matplotlib-base is PyPI's matplotlib, without Qt.
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def environment() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def from_pyproject(dependencies: list[str]) -> dict[str, SpecifierSet]:
    """Names as conda-forge has them, with their bounds."""
    wanted = [Requirement(dependency) for dependency in dependencies]
    return {CONDA_NAMES.get(one.name, one.name): one.specifier for one in wanted}


def from_conda(dependencies: list[Any]) -> dict[str, SpecifierSet]:
    """The conda part of environment.yml: each entry is `name` or `name bounds`; the pip part is left out."""
    pairs = [entry.partition(" ")[::2] for entry in dependencies if isinstance(entry, str)]
    return {name: SpecifierSet(bounds.strip()) for name, bounds in pairs}


def differences(conda: dict[str, SpecifierSet], wanted: dict[str, SpecifierSet], python: str) -> list[str]:
    """One line for each name or bound in which the two differ."""
    wanted = wanted | {"python": SpecifierSet(python), "pip": SpecifierSet("")}
    return sorted(
        f"{name}: {conda.get(name, 'absent')} in environment.yml, {wanted.get(name, 'absent')} in pyproject.toml"
        for name in conda.keys() | wanted.keys()
        if conda.get(name) != wanted.get(name)
    )


def test_environment_has_the_names_and_bounds_of_pyproject() -> None:
    conda, wanted = from_conda(environment()["dependencies"]), from_pyproject(project()["dependencies"])
    assert differences(conda, wanted, project()["requires-python"]) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda entries: [e for e in entries if e != "tqdm >=4.66"], "tqdm"),
        (lambda entries: [*entries, "pandas >=2"], "pandas"),
        (lambda entries: [e.replace("numpy >=2.0", "numpy >=1.26") for e in entries], "numpy"),
        (lambda entries: [e.replace("<3.14", "<3.13") for e in entries], "python"),
    ],
    ids=["lacking", "surplus", "other bound", "other Python"],
)
def test_a_difference_is_found_and_named(change: Any, named: str) -> None:
    entries = [entry for entry in environment()["dependencies"] if isinstance(entry, str)]
    wanted = from_pyproject(project()["dependencies"])
    found = differences(from_conda(change(entries)), wanted, project()["requires-python"])
    assert [line.split(":")[0] for line in found] == [named]


def test_pip_adds_only_the_course_itself_and_what_the_book_needs() -> None:
    """What pip installs in the conda environment is by construction what pyproject.toml says."""
    pip = [entry for entry in environment()["dependencies"] if isinstance(entry, dict)]
    assert pip == [{"pip": ["-e .[book]"]}]
    assert "book" in project()["optional-dependencies"]


def test_only_conda_forge_is_used() -> None:
    assert environment()["channels"] == ["conda-forge", "nodefaults"]


def test_the_bounds_admit_colab() -> None:
    text = (ROOT / "tools" / "colab-constraints.txt").read_text(encoding="utf-8")
    pins = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
    bounds = {one.name: one.specifier for one in map(Requirement, project()["dependencies"])}
    assert {"numpy", "torch", "timm", "matplotlib", "ipywidgets"} <= {pin.name for pin in pins}
    for pin in pins:
        exact = re.fullmatch(r"==([\w.]+)", str(pin.specifier))
        assert exact, f"{pin} is no exact pin"
        if pin.name in bounds:
            assert Version(exact[1]) in bounds[pin.name], (
                f"pyproject.toml's {pin.name}{bounds[pin.name]} shuts out Colab's {exact[1]}"
            )


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_is_a_workflow_for_changes_for_the_site_and_for_the_week() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "pages", "weekly"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_sound(path: Path) -> None:
    """They parse, end by themselves, may only read by default, and use actions of a fixed major version."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step), f"{step} neither uses an action nor runs a command"
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), f"{step['uses']} has no major version"
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job or name == "deploy"
    # Files that the commands name must be there.
    commands = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    for named in re.findall(r"(?<![\w/])(?:\.ci|tools|tests)/[\w./-]+", commands):
        assert (ROOT / named).is_file(), f"{path.name} runs {named}, which is not there"


def test_ci_runs_the_oldest_and_the_newest_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["check"]
    allowed = [
        f"3.{minor}" for minor in range(30) if Version(f"3.{minor}") in SpecifierSet(project()["requires-python"])
    ]
    assert job["strategy"]["matrix"]["python"] == [allowed[0], allowed[-1]]
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == "bash .ci/run"


def test_the_citation_file_is_the_packages() -> None:
    """The fields that version 1.2.0 of the format requires, the package's version, and no person made up."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["version"] == project()["version"]
    assert citation["authors"] == [{"name": "The Hungry Transformer contributors"}]
