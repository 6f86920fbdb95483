"""The options of every command, frozen: scripts depend on them. A new option is added here with intent."""

import typer.main

from faircl.cli.app import app

OPTIONS = {
    "add-classes": "--batch --classes --complete --data --device --epochs --format --holdout --json --labelled --lr "
    "--max-class-drop --max-drop --out --resume --root --same --seed --set --workers -d -o -r",
    "adopt": "--background --classes --data --format --images --json --model --out --root --set -d -o -r",
    "audit": "--background --before --classes --common --format --groups --ignore --json --labels --labels-ending "
    "--max-drop --max-gap --max-std --min-class-iou --min-miou --out --predictions --predictions-ending --resize "
    "--step -o",
    "bench evaluation": "--batch --classes --format --json --rounds --size --stride",
    "bench input": "--batch --format --height --images --json --noise --seconds --size --width --workers",
    "bench loss": "--batch --channels-first --channels-last --classes --exact --format --json --no-exact --plot "
    "--precision --rounds --size --stride",
    "bench methods": "--batch --classes --format --iterations --json --method --model --old --peer --precision "
    "--rounds --set --size",
    "bench step": "--batch --classes --format --iterations --json --model --old --peer --precision --rounds --set "
    "--size",
    "classes drop": "--json --out -o",
    "classes list": "--format --json",
    "classes merge": "--into --json --out -o",
    "classes rename": "--json --out -o",
    "compare": "--against --anyway --classes --format --json --layout --no-published --page --published",
    "config show": "--fit --json --set",
    "data check": "--all --data --format --json --masks-only --root --set --split -d -r",
    "data list": "--format --json",
    "data prepare": "--json --root --sbd -r",
    "data stats": "--data --format --json --no-cache --order --plot --root --set --split --task -d -r -t",
    "data synth": "--classes --images --json --out --seed --size --test-images -o",
    "demo": "--format --json --out --seed --set -o",
    "doctor": "--json",
    "eval": "--convention --data --format --images --json --root --step --version -d",
    "export": "--json --opset --out --step --to --version -o",
    "gradients": "--format --images --json --root --step",
    "methods": "--format --json",
    "models": "--format --json",
    "predict": "--batch --device --flip --format --half --json --no-overlay --out --overlap --overlay --probabilities "
    "--resume --skip-broken --step --tile --unknown --unknown-score --version -o",
    "recipes": "--data --format --json --method -d -m",
    "report": "--json --open --out --step --version -o",
    "scenario show": "--cache --convention --data --format --joint --json --no-cache --order --protocol --root --set "
    "--setting --task -d -r -t",
    "serve": "--device --host --max-bytes --max-pixels --open --port",
    "suggest": "--data --device --json --min-confidence --out --root --to --version -d -o -r",
    "train": "--batch --device --epochs --fit --format --json --logger --lr --method --model --out --resume --root "
    "--seed --set --task --workers -m -o -r -t",
    "versions list": "--format --json",
    "versions show": "--format --json",
    "versions undo": "--json",
}
NO_TABLE = {
    "config show",
    "data prepare",
    "data synth",
    "doctor",
    "export",
    "report",
    "serve",
    "suggest",
    "versions undo",
} | {f"classes {verb}" for verb in ("drop", "merge", "rename")}


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def options(command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}


def test_every_command_has_exactly_its_options():
    found = {name: options(command) for name, command in commands(typer.main.get_command(app))}
    assert found == {name: set(words.split()) for name, words in OPTIONS.items()}


def test_every_command_that_prints_a_table_has_a_format():
    without = {name for name, words in OPTIONS.items() if "--format" not in words.split()}
    assert without == NO_TABLE
