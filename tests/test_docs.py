"""The documentation says what the code does: its example runs, and its tables hold today's defaults."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from faircl.config import EvalConfig, OptimConfig, ScenarioConfig, TrainConfig
from faircl.data.readers import FolderConfig, SceneConfig
from faircl.methods.faircl import FairCLConfig
from faircl.registry import MODELS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLE = DOCS / "examples/distill.py"


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
            found[prefix + name] = None if field.is_required() else field.default
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
        *(("networks.md", name, [MODELS.get(name).Config]) for name in MODELS.builtin),
        ("configuration.md", "data", [SceneConfig, FolderConfig]),
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


@pytest.mark.parametrize("page", sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")}))
def test_links_between_files_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []
