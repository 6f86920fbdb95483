"""The page on audits: its Python runs, its workflow is the file beside it, and its commands have options that exist."""

import re

import pytest
import yaml
from pages import ROOT, blocks

from faircl.cli.app import app

PAGE, WORKFLOW = "docs/audit.md", ROOT / "docs/examples/audit.yml"


@pytest.fixture(scope="module")
def options():
    import typer.main

    command = typer.main.get_command(app).commands["audit"]
    return {name for one in command.params for name in one.opts}


def test_every_snippet_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for snippet in blocks(PAGE, "python"):
        exec(compile(snippet, PAGE, "exec"), names)
    assert (tmp_path / "audit/report.html").is_file()
    assert "rider" in capsys.readouterr().out


def test_the_workflow_is_shown_as_it_is(options):
    text = WORKFLOW.read_text(encoding="utf-8")
    assert f"```yaml\n{text}```\n" in (ROOT / PAGE).read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["audit"]["steps"]
    for step in steps:
        assert "uses" not in step or re.fullmatch(r"[\w/-]+@v\d+\.\d+\.\d+", step["uses"])
    assert "secrets" not in text
    (command,) = (step["run"] for step in steps if "faircl audit" in step.get("run", ""))
    assert set(re.findall(r"--[\w-]+", command)) <= options


def test_every_option_is_on_the_pages(options):
    text = (ROOT / PAGE).read_text(encoding="utf-8") + (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert {name for name in options if name.startswith("--") and f"`{name}" not in text} <= {"--json", "--format"}
