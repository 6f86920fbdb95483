"""``faircl add-classes``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import faircl
from faircl.cli import train_options as options
from faircl.cli.names import comma_list
from faircl.cli.output import Format, Json, Output, Set, print_json
from faircl.cli.stopping import stoppable
from faircl.errors import UserError


def add_classes(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run whose model learns new classes.")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="New images: a folder with images/, masks/, classes.txt, or a reader."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", "-r", help="Folder of the data, if --data is a reader.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Copy the run there first; otherwise it gets a version more.")
    ] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Images (split test) with labels of old classes, which the new version is checked on."),
    ] = None,
    max_drop: Annotated[
        float, typer.Option(help="Points of IoU that old classes may lose on the holdout, on average.")
    ] = 3.0,
    max_class_drop: Annotated[
        float | None, typer.Option(help="Points of IoU that every single old class may lose on the holdout.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="New classes to learn; otherwise all unknown ones.")
    ] = None,
    same: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KNOWN", help="A class of the new data that the model knows by another name."),
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(help="YAML file: patterns of image ids, and the classes that these images label at all."),
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="The new masks label every class, old ones too.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an addition that was interrupted.")] = False,
    epochs: Annotated[
        float | None, typer.Option(rich_help_panel=options.PANEL, help="Passes over the new images.")
    ] = None,
    batch: options.Batch = None,
    lr: Annotated[float | None, typer.Option(rich_help_panel=options.PANEL, help="Learning rate.")] = None,
    device: options.Device = None,
    workers: options.Workers = None,
    seed: options.Seed = None,
    settings: Set = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Teach a trained model new classes from images that label these alone; the old data is not needed.

    The run gets a new version, which 'faircl predict', 'faircl export' and the next 'add-classes' use. With --holdout
    a version that hurts old classes is kept, but rejected: exit code 1.

    [bold]Examples[/bold]

    faircl add-classes runs/street --data new/vans --holdout checked/

    faircl add-classes runs/street --data new/vans --out runs/street-2 --max-class-drop 5

    faircl add-classes runs/street --data cvat --root exports/job-7 --classes van,truck

    faircl add-classes runs/street --resume
    """
    given = {
        "--epochs": ("train.later_epochs", epochs),
        "--batch": ("train.batch", batch),
        "--lr": ("optim.later_lr", lr),
        "--device": ("train.accelerator", device),
        "--workers": ("train.workers", workers),
        "--seed": ("seed", seed),
    }
    overrides = options.with_options(given, settings or ())
    with stoppable():
        version = faircl.add_classes(
            run,
            data,
            root,
            out=out,
            holdout=holdout,
            classes=None if classes is None else comma_list(classes),
            same=_pairs(same or ()),
            labelled=None if labelled is None else _labelled(labelled),
            complete=complete,
            max_drop=max_drop,
            max_class_drop=max_class_drop,
            settings=overrides,
            resume=resume,
        )
    from faircl.cli.deploy.versions import show_version

    if as_json:
        print_json(version.to_json())
    else:
        show_version(Output(form), out or run, version)
    if not version.accepted:
        raise typer.Exit(1)


def _pairs(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    if len(pairs) < len(texts):
        wrong = next((text for text in texts if "=" not in text), texts[-1])
        raise UserError(f"--same {wrong} is not of the form NAME=KNOWN, or is given twice.")
    return pairs


def _labelled(path: Path) -> dict[str, list[str]]:
    """Read lists of labelled classes: a mapping of patterns to names."""
    import yaml

    from faircl.config.yaml_text import read_yaml

    try:
        tree: Any = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        found = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise UserError(f"Cannot read {path}: {found}; expected a YAML file.") from None
    names = tree.values() if isinstance(tree, dict) else [None]
    if not all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in names):
        raise UserError(f"{path} holds no lists of labelled classes; expected lines like: 'site-1/*': [van, truck].")
    return {str(pattern): list(listing) for pattern, listing in tree.items()}
