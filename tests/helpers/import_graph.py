"""The import graph of a source tree, read from its text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


def module_imports(source: Path) -> dict[str, set[str]]:
    """Return the modules of the tree that each module imports, at its top or in a function.

    ``source`` is the folder of the top package, such as ``src/faircl``. Imports under ``if TYPE_CHECKING`` and modules
    named in strings do not count.
    """
    modules = {_name(path, source): path for path in sorted(source.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[name] = {_known(target, modules) for target in _targets(tree, package)} - {"", name}
    return found


def package_graph(source: Path) -> dict[str, set[str]]:
    """Return the packages that each package imports.

    Modules directly under ``source`` count as packages of their own; its ``__init__`` has the tree's name.
    """
    graph: dict[str, set[str]] = {}
    for name, imported in module_imports(source).items():
        package = package_of(name)
        graph.setdefault(package, set()).update({package_of(other) for other in imported} - {package})
    return graph


def package_of(module: str) -> str:
    """Return the package of a module: ``faircl.models.small`` is of ``models``, ``faircl`` of ``faircl``."""
    top, *rest = module.split(".")
    return rest[0] if rest else top


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return groups of nodes that reach one another; there are none in a graph without circles."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    reached = {name: reach(name) for name in graph}
    groups = {
        tuple(sorted(other for other in found if name in reached.get(other, ())))
        for name, found in reached.items()
        if name in found
    }
    return sorted(map(list, groups))


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _known(target: str, modules: Mapping[str, Path]) -> str:
    """Return the longest part of a dotted name that is a module of the tree, or nothing."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target


def _targets(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, those of ``from a import b`` as ``a.b``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            base = ".".join([*parents, *filter(None, [child.module])])
            yield from (f"{base}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from _targets(ast.Module([other], []), package)
        else:
            yield from _targets(child, package)
