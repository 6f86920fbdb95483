"""The structure of the source: who may import whom, and how large packages and files may be."""

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from import_graph import circles, module_imports, package_graph, package_of

ROOT = Path(__file__).parents[1]
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "faircl"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MODULES_AT_MOST, LINES_AT_MOST = 25, 350
FORBIDDEN = {
    "methods": {"kernels", "acceleration", "engine", "cli"},
    "models": {"kernels", "acceleration", "methods", "engine", "cli"},
    "kernels": {"data", "loading", "models", "methods"},
    "readers": {"scenario", "loading", "models", "methods", "engine"},
    "deploy": {"api", "bench", "cli"},
    "report": {"engine", "bench", "cli"},
    "engine.evaluate": {"losses"},
    "serving": {"api", "bench", "cli", "deploy"},
    "engine": {"bench", "deploy", "api", "cli"},
}
"""A package or module, and the packages that it must not import."""


def short(path: Path) -> str:
    return path.relative_to(SOURCE.parent).as_posix()


@pytest.fixture(scope="module")
def imports():
    return module_imports(SOURCE)


def test_the_graph_is_that_of_the_source(imports):
    graph = package_graph(SOURCE)
    assert {path.name for path in PACKAGES if path.parent == SOURCE} <= set(graph)
    assert "faircl.engine.trainer" in imports["faircl.api.running"]
    assert {"data", "models", "methods"} <= graph["engine"]


def test_no_circle_between_packages():
    assert circles(package_graph(SOURCE)) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_package_must_not_import(name, imports):
    inside = {module for module in imports if f"{module}.".startswith(f"faircl.{name}.")}
    assert inside
    found = {(module, other) for module in inside for other in imports[module] if package_of(other) in FORBIDDEN[name]}
    assert found == set()


def test_no_package_holds_too_many_modules():
    sizes = {short(folder): len(list(folder.glob("*.py"))) for folder in PACKAGES}
    assert {folder: size for folder, size in sizes.items() if size > MODULES_AT_MOST} == {}


def test_no_file_is_too_long():
    lines = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > LINES_AT_MOST} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=short)
def test_a_package_begins_with_one_sentence(package):
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    first = text.split("\n\n")[0].replace("\n", " ")
    assert re.fullmatch(r"[A-Z](?:(?!\. ).)+\.", first), first


# ---- the page


@pytest.fixture(scope="module")
def script():
    """The script that draws docs/architecture.md."""
    spec = spec_from_file_location("make_architecture", DOCS / "make_architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_of_packages(script):
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- packages:start -->\n(.*?)<!-- packages:end -->", page, re.S)
    assert found
    assert found[1].strip() == script.table(), "run: python docs/make_architecture.py"


def test_the_picture_shows_every_package(script):
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", (DOCS / "images/packages.svg").read_text(encoding="utf-8"))
    assert sorted(texts) == script.packages(), "run: python docs/make_architecture.py"


# ---- the graph itself


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes the modules of a package 'top' and returns its folder."""

    def write(**modules):
        root = tmp_path / "top"
        for name, text in {"__init__": "", **modules}.items():
            path = root / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


def test_imports_are_found_wherever_they_are(tree):
    root = tree(
        a="import os\nfrom top import c\n\n\ndef f():\n    import top.b.deep as deep\n",
        b__in____init__="from .deep import x\n",
        b__in__deep="from ..c import y\nfrom top import __version__\n",
        c="try:\n    from top.d import z\nexcept ImportError:\n    z = None\n",
        d='NAMES = {"late": "top.a"}\n',
    )
    assert module_imports(root) == {
        "top": set(),
        "top.a": {"top.c", "top.b.deep"},
        "top.b": {"top.b.deep"},
        "top.b.deep": {"top.c", "top"},
        "top.c": {"top.d"},
        "top.d": set(),
    }
    assert package_graph(root) == {"top": set(), "a": {"b", "c"}, "b": {"c", "top"}, "c": {"d"}, "d": set()}


def test_imports_for_type_checking_do_not_count(tree):
    checked = "if TYPE_CHECKING:\n    from top.b import B\nelse:\n    from top.c import B\n"
    root = tree(a=f"from typing import TYPE_CHECKING\n{checked}", b="import top.a\n", c="")
    assert package_graph(root) == {"top": set(), "a": {"c"}, "b": {"a"}, "c": set()}
    assert circles(package_graph(root)) == []


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
