"""The documentation says what the code does: its example runs, its tables hold today's defaults, its pictures too."""

import base64
import io
import json
import re
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image
from pydantic import BaseModel

import faircl
from faircl.config.schema import BalanceConfig, EvalConfig, MemoryConfig, OptimConfig, ScenarioConfig, TrainConfig
from faircl.integrity.findings import KINDS
from faircl.methods.faircl import FairCLConfig, FairCLPaperConfig
from faircl.readers.base import ReaderConfig
from faircl.registry import METHODS, MODELS, READERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLE = DOCS / "examples/distill.py"
FAIRCL = ("faircl", "faircl-paper")
"""Methods of the page method.md; all others are on methods.md."""


# ---- the example


@pytest.fixture
def distill(monkeypatch):
    """Register the example as an installed package would."""
    point = EntryPoint("distill", "distill:Distill", "faircl.methods")
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.setattr("faircl.registry.entry_points", lambda group: [point] if group == point.group else [])


def test_the_page_shows_the_example_as_it_is():
    assert f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```\n" in (DOCS / "extending.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.usefixtures("distill")
def test_the_example_trains_two_steps(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", "method={name: distill, weight: 2}", "train.epochs=1")
    assert folder.finished_steps() == 2
    assert folder.config().method.weight == 2
    terms = {
        step: {name for r in folder.records("train") if r["step"] == step for name in r["terms"]} for step in (0, 1)
    }
    assert terms == {0: {"seg"}, 1: {"seg", "distill"}}
    assert all(r["terms"]["distill"] > 0 for r in folder.records("train") if r["step"] == 1)


@pytest.mark.usefixtures("distill")
def test_the_command_line_knows_the_example(cli):
    assert "distill" in cli("methods").out
    assert "weight of the distillation term" in cli("methods", "distill").out


# ---- the pages


def test_every_page_is_in_the_navigation():
    entries = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(page for entry in entries for page in entry.values()) == sorted(p.name for p in DOCS.glob("*.md"))


# ---- the tables


def tables(page: str, heading: str) -> dict[str, str]:
    """First and second cell of every row of the tables below a heading, whatever follows; backticks dropped."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section, f"{page} has no section {heading}"
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in section[1].splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("`").strip() for cell in row[:2]] for row in rows]
    return {key: default for key, default in cells if key != "key" and key.strip("-: ")}


def defaults(model: type[BaseModel], prefix: str = "") -> dict[str, object]:
    """Default of every setting, sections spelled ``a.b``; None for those that must be given."""
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            found |= defaults(type(field.default), f"{prefix}{name}.")
        else:
            made = None if field.is_required() else field.get_default(call_default_factory=True)
            found[prefix + name] = getattr(made, "name", made)  # a method inside another goes by its name
    return found


def plain(value: object) -> object:
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize(
    ("page", "heading", "models"),
    [
        ("method.md", "Hyper-parameters", [FairCLConfig]),
        ("configuration.md", "optim", [OptimConfig]),
        ("configuration.md", "train", [TrainConfig]),
        ("configuration.md", "scenario", [ScenarioConfig]),
        ("configuration.md", "eval", [EvalConfig]),
        ("configuration.md", "balance", [BalanceConfig]),
        ("configuration.md", "memory", [MemoryConfig]),
        *(("networks.md", name, [MODELS.get(name).Config]) for name in MODELS.builtin),
        *(("methods.md", name, [METHODS.get(name).Config]) for name in METHODS.builtin if name not in FAIRCL),
        *(("data.md", name, [READERS.get(name).Config]) for name in READERS.builtin),
        ("configuration.md", "data", [ReaderConfig]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_setting_is_in_its_table_with_its_default(page, heading, models):
    expected = {name: default for model in models for name, default in defaults(model).items()}
    rows = tables(page, heading)
    if heading != "optim":  # elsewhere the name is not a setting but chooses what the others are
        expected.pop("name", None)
        rows.pop("name", None)
    assert sorted(rows) == sorted(expected)
    documented = {name: yaml.safe_load(default) for name, default in rows.items()}
    assert documented == {name: plain(default) for name, default in expected.items()}


def test_the_defaults_of_faircl_paper_that_differ_are_in_their_table():
    default, paper = (defaults(model) for model in (FairCLConfig, FairCLPaperConfig))
    rows = {name: yaml.safe_load(value) for name, value in tables("method.md", "faircl-paper").items()}
    assert rows == {name: value for name, value in paper.items() if value != default[name] and name != "name"}


def test_every_reader_is_listed_and_linked_to():
    rows = tables("data.md", "Data sets")
    linked = [match[1] for row in rows if (match := re.fullmatch(r"\[`(.+)`\]\(#\1\)", row))]
    assert sorted(linked) == sorted(READERS.builtin)
    section = (DOCS / "configuration.md").read_text(encoding="utf-8").partition("## data\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"\(data\.md#([^)]+)\)", section)) == sorted(READERS.builtin)


def test_every_problem_that_a_check_finds_is_in_the_table():
    rows = tables("data.md", "Checking")
    assert rows.pop("problem") == "severity"
    assert list(rows.items()) == [(kind, about.severity) for kind, about in KINDS.items()]


@pytest.mark.parametrize("page", sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")}))
def test_links_between_files_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]
    written = {f"live/{run.name}.html" for run in (DOCS / "live").iterdir()}  # when the site is built
    assert [link for link in targets if link not in written and not (page.parent / link).exists()] == []
    if page.parent == DOCS:  # the built pages hold nothing else
        assert [link for link in targets if not (DOCS / link).resolve().is_relative_to(DOCS)] == []


# ---- the pictures


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """Return the script that draws them."""
    spec = spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(pictures: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the pictures, drawn now."""
    folder = tmp_path_factory.mktemp("pictures")
    pictures.main(folder)
    return folder


def elements(path: Path) -> list[tuple[Any, ...]]:
    """Everything an SVG file shows, embedded PNGs as pixels: how well they are compressed does not matter."""
    shown: list[tuple[Any, ...]] = []
    for element in ElementTree.parse(path).iter():
        about, pixels = dict(element.attrib), None
        if href := about.pop("href", ""):
            file = io.BytesIO(base64.b64decode(href.partition("base64,")[2]))
            pixels = np.asarray(Image.open(file).convert("RGB")).tobytes()
        shown.append((element.tag.rpartition("}")[2], about, (element.text or "").strip(), pixels))
    return shown


def bars(path: Path) -> tuple[list[str], list[tuple[str, float]]]:
    """Texts of a plot, and colour and height of its bars; the highest is 1. Neither depends on fonts or layout."""
    texts, found = [], []
    for element in ElementTree.parse(path).iter():
        tag, style = element.tag.rpartition("}")[2], element.get("style", "")
        if tag == "text":
            texts.append((element.text or "").strip())
        if tag == "path" and (fill := re.match(r"fill: (#\w+); stroke", style)) and element.get("clip-path"):
            heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", element.get("d", ""))]
            found.append((fill[1], max(heights) - min(heights)))
    highest = max(height for _, height in found)
    return texts, [(colour, height / highest) for colour, height in found]


@pytest.mark.parametrize("name", ["training-labels.svg", "evaluation-labels.svg"])
def test_label_pictures_are_what_the_script_draws(drawn, name):
    assert elements(DOCS / "images" / name) == elements(drawn / name), "run: python docs/make_pictures.py"


def test_the_plot_of_classes_is_what_the_script_draws(drawn):
    (texts, expected), (new_texts, found) = (bars(at / "class-distribution.svg") for at in (DOCS / "images", drawn))
    assert len(expected) == 11  # ten classes and background
    assert new_texts == texts, "run: python docs/make_pictures.py"
    assert [colour for colour, _ in found] == [colour for colour, _ in expected]
    assert [height for _, height in found] == pytest.approx([height for _, height in expected], abs=0.01)


def test_the_command_draws_the_same_plot(cli, drawn, tmp_path):
    cli("data", "stats", "--data", "scenes", "--task", "6-4", "--plot", str(tmp_path / "classes.svg"))
    assert bars(tmp_path / "classes.svg") == bars(drawn / "class-distribution.svg")


def test_pictures_are_shown_described_and_small(pictures):
    page = (DOCS / "data.md").read_text(encoding="utf-8")
    shown = {name: text for text, name in re.findall(r"!\[(.*?)\]\(images/(.*?)\)", page)}
    assert sorted(shown) == sorted(pictures.PICTURES)
    assert all(len(text) > 40 for text in shown.values())
    assert sum((DOCS / "images" / name).stat().st_size for name in shown) < 200_000


# ---- the live reports


@pytest.mark.parametrize("run", sorted((DOCS / "live").iterdir()), ids=lambda path: path.name)
def test_a_live_report_shows_its_run(run, tmp_path):
    page = faircl.write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    last = [line for line in lines if line["kind"] == "eval"][-1]
    assert f"{last['miou']['all']:.1f}" in page
    assert all(c["name"] in page for c in last["classes"])
    named = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert not Path(named["data"].get("root", "data")).is_absolute()
