"""The real process: exit codes, streams, signals, help."""

import os
import subprocess
import sys

import pytest
import typer.main
from grids import grid

import faircl
from faircl.cli.app import app


def faircl_process(*args: object, **options) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "faircl", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, **options)


def test_version_and_a_mistake(tmp_path):
    found = faircl_process("--version")
    assert (found.returncode, found.stdout) == (0, f"faircl {faircl.__version__}\n")
    wrong = faircl_process("train", "dmo", "--out", tmp_path / "run")
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.startswith("faircl: Unknown recipe 'dmo'. Did you mean 'demo'?")
    assert wrong.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_in_this_process(cli, tmp_path, tiny_flags, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("faircl.engine.trainer.Trainer.train_step", interrupted)
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags)
    assert result.code == 130
    assert result.err.endswith(
        "faircl: stopped; a training run keeps its finished steps and continues with --resume.\n"
    )


@pytest.mark.slow
def test_output_into_a_closed_pipe():
    command = f"'{sys.executable}' -m faircl config show demo | head -n 1"
    found = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=120)
    assert found.stdout == "seed: 0\n"
    assert "Traceback" not in found.stderr
    assert "Exception" not in found.stderr


@grid("words", [("methods", "faircl"), ("config", "show", "demo")], ids=" ".join)
def test_the_exit_code_of_a_closed_pipe(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "faircl", *words]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, "")


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = sorted(commands(typer.main.get_command(app)))


def test_the_commands_are_known():
    assert {("demo",), ("train",), ("eval",), ("methods",), ("models",), ("recipes",), ("doctor",)} <= set(ALL)
    assert {("config", "show"), ("data", "synth")} <= set(ALL)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_an_example_that_calls_the_command(cli, path):
    result = cli(*path, "--help")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "Examples" in text
    assert text.count(f"faircl {' '.join(path)}") >= 2  # the usage line and an example


@pytest.mark.parametrize("args", [["--help"], ["config", "--help"], ["data", "--help"]])
def test_help_of_groups(cli, args):
    result = cli(*args)
    assert result.code == 0
    assert "Usage" in result.out


@pytest.mark.parametrize(
    "args",
    [["trian"], ["train"], ["train", "demo"], ["train", "demo", "--out", "x", "--sed", "1"], ["demo", "--seed", "-1"],
     ["demo", "--seed", "x"], ["eval"], ["methods", "a", "b"]],
)  # fmt: skip
def test_usage_mistakes_are_exit_code_2_without_a_traceback(cli, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*args)
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    assert not list(tmp_path.iterdir())


def test_tables_for_people(cli, tiny_run):
    shown = cli("eval", tiny_run.path)
    assert shown.code == 0
    for word in ("faircl, task 6-4, overlapped, seed 0", "worst class", "rarest third"):
        assert word in shown.out
    assert "lambda_class" in cli("methods", "faircl").out
    for command in ("methods", "models", "recipes", "doctor"):
        assert cli(command).code == 0
