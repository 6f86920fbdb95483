"""The documentation of the Python API runs: the ten lines, every snippet of docs/python.md, the notebook."""

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pages import ROOT, blocks
from PIL import Image

import faircl

NOTEBOOKS = ROOT / "docs/examples"


def docstring_example() -> str:
    found = re.search(r"\n\n(    import faircl\n.*?)\n\nRun\n", faircl.__doc__ or "", re.S)
    assert found
    return textwrap.dedent(found[1]) + "\n"


@pytest.fixture
def place(tmp_path, monkeypatch, silent) -> Path:
    """A folder with data/street and photo.jpg, which the examples read; the present one."""
    from faircl.readers.scenes import SceneData
    from faircl.readers.write_folder import write_folder
    from faircl.registry import METHODS

    scenes = SceneData(16, 4, 32)
    write_folder(scenes, ("train", "test"), tmp_path / "data/street", silent())
    Image.fromarray(scenes.read("test", scenes.ids("test")[0]).image).resize((48, 36)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "registered", {})
    return tmp_path


def test_the_ten_lines_are_the_same_everywhere_and_ten():
    example = docstring_example()
    assert blocks("docs/python.md", "python")[0] == blocks("README.md", "python")[0] == example
    assert len([line for line in example.splitlines() if line]) <= 10


@pytest.mark.slow
def test_every_snippet_of_the_page_runs(place, capsys):
    """The first one trains on a folder and segments a photo; the others use what it made."""
    names: dict[str, object] = {"__name__": "page"}
    for number, snippet in enumerate(blocks("docs/python.md", "python")):
        exec(compile(snippet, f"docs/python.md, snippet {number}", "exec"), names)
        if number == 0:
            out = capsys.readouterr().out
            assert re.search(r"step 0: mean IoU \d+\.\d %\nstep 1: mean IoU \d+\.\d %\n\{'", out)
            assert Image.open(place / "overlay.png").size == (48, 36)
    assert (place / "runs/compared/comparison.html").is_file()
    assert "Did you mean 'lr'?" in capsys.readouterr().out


def run_notebook(name: str) -> dict[str, object]:
    """Run the code cells of a notebook, which is kept without outputs, and return the names they leave."""
    book = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))
    assert book["nbformat"] == 4
    names: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(book["cells"]):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
    return names


@pytest.fixture
def figures() -> Iterator[Callable[[], list[int]]]:
    """Return a function that lists the open figures; they are closed at the end."""
    from matplotlib import pyplot

    yield pyplot.get_fignums
    pyplot.close("all")


@pytest.mark.slow
def test_the_first_notebook_runs(place, figures, capsys):
    names = run_notebook("first-steps.ipynb")
    assert len(figures()) == 2
    assert re.search(r"step 1: old \d+\.\d, new \d+\.\d, all \d+\.\d, gap \d+\.\d\n", capsys.readouterr().out)
    assert names["after"].mask.shape == (96, 96)
    assert len(names["before"].names) == 7


@pytest.mark.slow
def test_the_notebook_on_your_own_data_runs(place, figures, capsys):
    names = run_notebook("your-own-data.ipynb")
    assert len(figures()) == 1
    assert sorted(path.name for path in (place / "data/mine").iterdir()) == ["classes.txt", "images", "masks"]
    assert [name for name, _ in names["comparison"].runs] == ["finetune", "mib", "faircl"]
    assert {run.scenario.sha256 for run in names["runs"]} == {names["scenario"].sha256}
    assert names["prediction"].mask.shape == (64, 64)
    assert names["prediction"].colours[1] == (128, 64, 128)  # as classes.txt has it
    assert re.search(r"cyclist +learned at step 1, IoU \d+\.\d %\n", capsys.readouterr().out)
