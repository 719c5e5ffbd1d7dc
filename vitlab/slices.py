"""The records that a chapter asks for, and what each needs of the chapter; told from the text, nothing is run.

A *slice* is what must run to make one record: the imports, the settings (seeds, threads, precision) and those
top-level statements, in the chapter's order, that bind what the call of `lab.record` reads and what these read in
turn. Figures, tables and exercises are left out. What a statement changes by calling a function on it cannot be
told, so a chapter builds what a measurement uses by assignment, or in place as `x[k] = ...` or `x.append(...)`.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitlab import digest, lab, recording

PLUMBING = True  # a change here cannot change a recorded number

# What may be called to tell the seeds, the rank or the minutes of a record without running the chapter.
_PLAIN = {
    function.__name__: function
    for function in (dict, enumerate, float, int, len, list, max, min, range, round, set, sorted, sum, tuple, zip)
}
_LAB = (("vitlab", "lab"), ("vitlab.lab", None))


class Unknown(ValueError):
    """A value cannot be told without running the chapter."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One `lab.record` of a chapter, as far as the text tells."""

    chapter: Chapter
    position: int  # of its statement in the chapter
    name: str
    function: str
    seeds: tuple[int, ...]
    rank: int
    minutes: float | None  # a seed, as declared
    config: dict[str, Any]
    whole: bool  # whether the configuration could be told whole

    @cached_property
    def code(self) -> dict[str, str]:
        """The fingerprint of its code."""
        return digest.digest(self.chapter.text, self.function, lab.scale())

    @cached_property
    def needs(self) -> list[int]:
        """The positions of the statements to run, its own the last."""
        return self.chapter.needs(self.position)

    def run(self) -> None:
        """Run its slice, which makes the record, as the chapter would that it stands in."""
        body = [self.chapter.body[k] for k in self.needs]
        code = compile(ast.Module(body, []), str(self.chapter.file), "exec", dont_inherit=True)
        module = types.ModuleType("__main__")
        module.__file__ = str(self.chapter.file)
        before = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(code, module.__dict__)
        finally:
            sys.modules["__main__"] = before


class Chapter:
    """A chapter's top-level statements, and which names each binds and reads.

    Raises:
        ValueError: the chapter is no Python, or asks for a record in a way that cannot be planned.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.text = digest.text_of(file)
        try:
            self.body = ast.parse(self.text).body
        except SyntaxError as error:
            raise ValueError(f"{file.name} is no Python at line {error.lineno}; mend it.") from None
        definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        self.imports: dict[str, tuple[str, str | None]] = {}
        for statement in self.body:
            if not isinstance(statement, definitions):
                self.imports.update(digest.imports_of(statement, ""))
        self._binds = [digest.bound_names(s) | (digest.changed_names(s) - self.imports.keys()) for s in self.body]
        self._reads = [digest.global_names(ast.unparse(s)) for s in self.body]
        self._later = [any(isinstance(n, definitions | ast.Lambda) for n in ast.walk(s)) for s in self.body]
        self._anew = [isinstance(s, definitions) for s in self.body]

    @cached_property
    def asks(self) -> list[Asked]:
        """The records it asks for, in its order."""
        calls = [(k, call) for k, statement in enumerate(self.body) for call in self._calls(statement)]
        return [self._asked(k, call) for k, call in calls]

    def needs(self, position: int) -> list[int]:
        """Return the positions of what must run for the statement at this one to do what it does."""
        start = {k for k in range(position) if self._is_setting(self.body[k])} | {position}
        imports = {k for k in range(position) if digest.only_imports(self.body[k])}
        reads = [(name, k) for k in start | imports for name in self._reads[k]]
        return sorted(start | imports | self._bind(reads, position))

    def value(self, expression: ast.expr, position: int) -> Any:
        """Return what an expression at this position is, if constants and `lab.choose` make it.

        Raises:
            Unknown: something else does.
        """
        names = digest.global_names(ast.unparse(expression))
        needed = sorted(self._bind([(name, position) for name in names], position))
        body = [s for s in (self.body[k] for k in needed) if not digest.only_imports(s)]
        for node in (*body, expression):
            if not (
                isinstance(node, ast.Assign | ast.AnnAssign | ast.expr) and all(map(self._plain, ast.walk(node)))
            ):
                raise Unknown(ast.unparse(expression))
        scope = {"__builtins__": _PLAIN, **{n: lab for n, to in self.imports.items() if to in _LAB}}
        try:
            exec(compile(ast.Module(body, []), str(self.file), "exec", dont_inherit=True), scope)
            return eval(compile(ast.Expression(expression), str(self.file), "eval", dont_inherit=True), scope)
        except Exception as error:
            raise Unknown(ast.unparse(expression)) from error

    def _bind(self, reads: list[tuple[str, int]], position: int) -> set[int]:
        """Return what binds these names, as they are read at these positions, and all that this reads in turn.

        A function reads its globals when it is called: where its reader stands, or last at the record itself.
        """
        found: set[int] = set()
        seen: set[tuple[str, int]] = set()
        while reads:
            name, at = reads.pop()
            if (name, at) in seen:
                continue
            seen.add((name, at))
            for k in reversed(range(at)):
                if name not in self._binds[k]:
                    continue
                found.add(k)
                times = (k, at, position) if self._later[k] else (k,)
                reads.extend((other, time) for other in self._reads[k] for time in times)
                if self._anew[k] or digest.is_set_anew(self.body[k], name):
                    break
        return found

    def _is_setting(self, statement: ast.stmt) -> bool:
        """Whether a statement sets something outside the chapter: `torch.manual_seed(0)`, `os.environ[k] = v`."""
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            path = ast.unparse(statement.value.func).split(".")
            sets = path[-1] == "start" or "seed" in path[-1] or path[-1].startswith("set_")
            return sets and path[0] in self.imports
        if isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name):
            return bool(digest.changed_names(statement) & self.imports.keys())
        return False

    def _plain(self, node: ast.AST) -> bool:
        """Whether a piece of an expression computes nothing but constants."""
        if isinstance(node, ast.Call):
            return self._of_lab(node.func, "choose", "scale") or getattr(node.func, "id", "") in _PLAIN
        if isinstance(node, ast.Attribute):
            return self._of_lab(node, "choose", "scale")
        return not isinstance(node, ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom)

    def _of_lab(self, function: ast.expr, *names: str) -> bool:
        """Whether an expression is one of these functions of `vitlab.lab`."""
        return (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and self.imports.get(function.value.id) in _LAB
            and function.attr in names
        )

    def _calls(self, node: ast.AST) -> Iterator[ast.Call]:
        """Yield the calls of `lab.record` in a statement, those inside definitions left out."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            return
        if isinstance(node, ast.Call) and self._of_lab(node.func, "record"):
            yield node
        for child in ast.iter_child_nodes(node):
            yield from self._calls(child)

    def _asked(self, position: int, call: ast.Call) -> Asked:
        where = f"The lab.record in line {call.lineno} of {self.file.name}"
        if not (
            len(call.args) == 2
            and isinstance(call.args[0], ast.Constant)
            and isinstance(call.args[1], ast.Name)
            and isinstance(call.args[0].value, str)
        ):
            raise ValueError(
                f"{where} cannot be planned; write its name as text and its measurement as the name of a function."
            )
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        plan: dict[str, Any] = {"seeds": 3, "rank": 100, "minutes": None}
        for key in plan.keys() & given.keys():
            try:
                plan[key] = self.value(given.pop(key), position)
            except Unknown as error:
                raise ValueError(
                    f"{where} cannot be planned: its {key}, {error}, cannot be told without running the chapter; "
                    "write numbers, names of numbers, or lab.choose(...)."
                ) from None
        recording.check_plan(plan["rank"], plan["minutes"])
        config: dict[str, Any] = {}
        whole = True
        for argument, expression in given.items():
            try:
                value = self.value(expression, position)
                config.update(recording.frozen({argument: value} if argument else value))
            except ValueError:
                whole = False
        seeds = tuple(sorted(recording.seeds_wanted(plan.pop("seeds"))))
        return Asked(
            self, position, call.args[0].value, call.args[1].id, seeds, config=config, whole=whole, **plan
        )
