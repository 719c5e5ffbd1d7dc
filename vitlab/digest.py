"""A fingerprint of the code behind a number: what a function reads, and what that reads, to the bottom.

The fingerprint is taken from the text, nothing is run: starting at one function of a chapter, every top-level
definition it names is followed, through the chapter and through vitlab. Comments, formatting, docstrings and the
messages of errors do not count. Nor does code of other packages (their versions stand in the record), nor a module
that declares itself `PLUMBING = True`, because a change there cannot change a number.
"""

from __future__ import annotations

import ast
import hashlib
import symtable
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

PLUMBING = True  # a change here cannot change a recorded number

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = "vitlab"
_texts: dict[Path, str] = {}  # as they were when the run began: that is the code that runs


class Source:
    """The top-level statements of one file or notebook, by the names they bind."""

    def __init__(self, text: str, module: str) -> None:
        self.module = module
        self._looked: dict[tuple[str, str], tuple[str, list[tuple[Source, str]]]] = {}
        self.statements: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, tuple[str, str | None]] = {}
        for statement in ast.parse(text).body:
            definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if not definition:  # what a function imports inside is its own
                self.imports.update(imports_of(statement, module))
            if only_imports(statement):
                continue
            # A call on an imported module, torch.manual_seed() say, is no change of ours.
            for name in bound_names(statement) | (changed_names(statement) - self.imports.keys()):
                known = self.statements.setdefault(name, [])
                if definition or is_set_anew(statement, name):
                    known.clear()  # the last one counts: a reader runs a cell again
                known.append(statement)

    @property
    def plumbing(self) -> bool:
        """Whether the module says of itself that no number depends on it."""
        return any(
            isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and s.value.value is True
            for s in self.statements.get("PLUMBING", [])
        )

    def look(self, name: str, scale: str) -> tuple[str, list[tuple[Source, str]]]:
        """Return the fingerprint of the statements that bind a name, and what they read; looked at once."""
        if (name, scale) not in self._looked:
            statements = [_Normalise(scale).visit(ast.parse(ast.unparse(s))) for s in self.statements[name]]
            dumps = dict.fromkeys(
                _dump(s) for s in statements
            )  # a cell run twice binds a name twice, the same way
            found = hashlib.sha256("\n".join(dumps).encode()).hexdigest()[:12]
            reads = [read for statement in statements for read in _references(statement, self)]
            self._looked[name, scale] = found, reads
        return self._looked[name, scale]


def digest(text: str, function: str, scale: str) -> dict[str, str]:
    """Return a fingerprint of `function` and of every definition it depends on.

    Args:
        text: the chapter's source, cells joined; notebook magics removed.
        function: the name of a top-level function in it.
        scale: of `choose(smoke=..., laptop=..., paper=...)` only this branch counts.

    Returns:
        Qualified name to 12 hexadecimal digits, for example `{"measure": "1f0c...", ...}`.

    Raises:
        ValueError: the chapter does not define the function at its top level.
    """
    chapter = _chapter(text)
    if function not in chapter.statements:
        raise ValueError(
            f"A measurement is a function at the top level of its chapter, but {function!r} is not defined there; "
            "move it into a cell of its own."
        )
    found: dict[str, str] = {}
    queue: list[tuple[Source, str]] = [(chapter, function)]
    while queue:
        source, name = queue.pop()
        key = f"{source.module}.{name}" if source.module else name
        if key in found or source.plumbing:
            continue
        if name in source.imports:  # an import is no definition: what it leads to is
            queue.extend(_follow(source.imports[name], []))
        if name not in source.statements:
            continue
        found[key], reads = source.look(name, scale)
        queue.extend(reads)
    return found


def snapshot(*chapters: Path) -> None:
    """Remember the package and these chapters as they are: what is edited later does not run in this run."""
    for file in (*_ROOT.joinpath(_PACKAGE).rglob("*.py"), *chapters):
        text_of(file)


def text_of(file: Path) -> str:
    """Return a file's text as it was when first asked for."""
    if file not in _texts:
        _texts[file] = file.read_text(encoding="utf-8")
    return _texts[file]


def changed(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return the names whose code differs between two fingerprints, or that only one of them has."""
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _references(statement: ast.AST, source: Source) -> Iterator[tuple[Source, str]]:
    """Yield what a statement reads from its module's top level or, through an import, from vitlab."""
    imports = source.imports | imports_of(statement, source.module)
    wanted = global_names(ast.unparse(statement))
    inner: set[int] = set()  # the `a.b` inside `a.b.c`, already covered by the longer chain
    for node in ast.walk(statement):
        chain: list[str] = []
        root: ast.expr | None = node if isinstance(node, ast.Attribute | ast.Name) else None
        if root is None or id(root) in inner:
            continue
        while isinstance(root, ast.Attribute):
            inner.add(id(root.value))
            chain.insert(0, root.attr)
            root = root.value
        if not isinstance(root, ast.Name) or root.id not in wanted | set(imports):
            continue
        if root.id in imports:
            yield from _follow(imports[root.id], chain)
        if root.id in source.statements:
            yield source, root.id


def _follow(target: tuple[str, str | None], chain: list[str]) -> Iterator[tuple[Source, str]]:
    """Yield the vitlab definitions that an imported name, and the attributes read off it, lead to."""
    module, name = target
    path = [*module.split("."), *([name] if name else []), *chain]
    if path[0] != _PACKAGE:
        return
    depth = len(path)
    while depth and _module_file(".".join(path[:depth])) is None:
        depth -= 1
    source = _load(".".join(path[:depth]))
    if depth < len(path):
        yield source, path[depth]
    else:  # the module itself is handed on: all of it counts, and of a package all modules
        yield from ((source, name) for name in source.statements)
        folder = _ROOT.joinpath(*source.module.split("."))
        for file in sorted(folder.glob("*.py")):
            if file.stem != "__init__":
                yield from _follow((f"{source.module}.{file.stem}", None), [])


def _module_file(module: str) -> Path | None:
    base = _ROOT.joinpath(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


@lru_cache(maxsize=8)
def _chapter(text: str) -> Source:
    return Source(text, "")


@cache
def _load(module: str) -> Source:
    file = _module_file(module)
    assert file is not None
    return Source(text_of(file), module)


def only_imports(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but import, perhaps under a condition."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return all(map(only_imports, statement.body))
    return isinstance(statement, ast.Import | ast.ImportFrom)


def changed_names(statement: ast.stmt) -> set[str]:
    """Return the names whose objects a statement changes in place: `x.a = ...`, `x[k] = ...`, `x.add(...)`."""
    changed: list[ast.expr] = []
    for node in ast.walk(statement) if not isinstance(statement, ast.FunctionDef | ast.ClassDef) else ():
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            changed.append(node.value)
        elif isinstance(node, ast.Expr) and isinstance(getattr(node.value, "func", None), ast.Attribute):
            changed.append(node.value.func.value)  # type: ignore[attr-defined]
    names = set()
    for root in changed:
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name):
            names.add(root.id)
    return names


def is_set_anew(statement: ast.stmt, name: str) -> bool:
    """Whether a statement is `name = ...` without reading the old value."""
    return (
        isinstance(statement, ast.Assign)
        and [getattr(target, "id", None) for target in statement.targets] == [name]
        and name not in global_names(ast.unparse(statement.value))
    )


def imports_of(statement: ast.AST, module: str) -> dict[str, tuple[str, str | None]]:
    """Return what the imports anywhere in a statement bind: local name to (module, name in it)."""
    bound: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    bound[alias.asname] = (alias.name, None)
                else:
                    bound[alias.name.split(".")[0]] = (alias.name.split(".")[0], None)
        elif isinstance(node, ast.ImportFrom):
            parent = node.module or ""
            if node.level:  # relative, inside vitlab
                file = _module_file(module)
                parts = module.split(".")
                package = parts if file and file.name == "__init__.py" else parts[:-1]
                kept = package[: len(package) - node.level + 1]
                parent = ".".join([*kept, *([node.module] if node.module else [])])
            for alias in node.names:
                if alias.name == "*" and parent.split(".")[0] == _PACKAGE:
                    raise ValueError(f"What `from {parent} import *` brings cannot be told; name what is used.")
                bound[alias.asname or alias.name] = (parent, alias.name)
    return bound


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the top-level names a statement binds, as Python's own symbol table sees it."""
    table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}


def global_names(text: str) -> set[str]:
    """Return the names that code reads from its module's top level, locals and arguments excluded."""
    table = symtable.symtable(text, "<cell>", "exec")
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    below = list(table.get_children())
    while below:
        scope = below.pop()
        names |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        below.extend(scope.get_children())
    return names


def _dump(node: object) -> str:
    """Write a syntax tree as text that is the same on every Python; `ast.dump` is not."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        kept = (f"{name}={_dump(value)}" for name, value in fields if name not in ("ctx", "kind", "type_comment"))
        return f"{type(node).__name__}({', '.join(kept)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    return repr(node)


class _Normalise(ast.NodeTransformer):
    """Drop docstrings, the messages of errors, the other scales of `choose(...)`, the plan of `record(...)`."""

    def __init__(self, scale: str) -> None:
        self.scale = scale

    def _without_docstring(self, node: ast.AST) -> ast.AST:
        body = node.body  # type: ignore[attr-defined]
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _without_docstring

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Keep that an error is raised, not its message: no number is recorded after it."""
        self.generic_visit(node)
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "record":  # how many seeds are drawn, and when, changes no seed's numbers
            node.keywords = [key for key in node.keywords if key.arg not in ("seeds", "rank", "minutes")]
        if name == "choose":
            for keyword in node.keywords:
                if keyword.arg == self.scale:
                    return keyword.value
        return node
