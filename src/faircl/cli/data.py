"""``faircl data``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from faircl.api.opening import data_settings
from faircl.cli.opened import Data, DataSet, Root
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.data.sample import SegmentationData
    from faircl.readers.base import ReaderConfig

app = typer.Typer(help="Make, look at and check data.", no_args_is_help=True)

PREPARED = ("voc",)
"""Data sets that can be prepared."""


@app.callback()
def _group() -> None:
    """Make, look at and check data."""


@app.command("list")
def list_readers(
    name: Annotated[str | None, typer.Argument(help="Explain this one: files it expects, settings.")] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """List the kinds of data sets that can be read, or explain one.

    [bold]Examples[/bold]

    faircl data list

    faircl data list folder
    """
    from faircl.cli import data_view
    from faircl.registry import READERS

    if as_json and name is None:
        print_json([data_view.reader_summary(one) for one in READERS.names()])
    elif name is None:
        data_view.print_readers(Output(form))
    elif as_json:
        print_json(data_view.reader_detail(name))
    else:
        data_view.print_reader(Output(form), name)


@app.command()
def stats(
    data: Data,
    root: Root = None,
    split: Annotated[str | None, typer.Option(help="Split to count; default: the one to train on.")] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", "-t", help="Show the step that learns each class: '15-1', '6-2-3' or class lists."),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Order of the classes: a list or 'random:SEED'.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Draw the classes: a .svg, .png or .pdf file.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Count every mask anew.")] = False,
    overrides: DataSet = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Show how the pixels of a split are spread over its classes; images are not needed.

    [bold]Examples[/bold]

    faircl data stats --data folder --root data/street

    faircl data stats --data scenes --task 6-4 --plot classes.svg

    faircl data stats --data ade --root ADEChallengeData2016 --split validation --json
    """
    from faircl.data.class_stats import data_stats
    from faircl.data.label_index import index_labels
    from faircl.progress import ConsoleReporter
    from faircl.scenario.from_config import report_skipped_files

    given = [f"scenario.{key}={value}" for key, value in (("task", task), ("order", order)) if value is not None]
    config, scenario = data_settings(data, root, settings=[*given, *(overrides or ())])
    if plot is not None:
        from faircl.report.plot_files import check_plot_file

        plot = plot.expanduser()
        check_plot_file(plot)
    opened = config.open()
    steps = _steps(opened, scenario)
    split = config.train if split is None else split
    report_skipped_files(opened, (split,), ConsoleReporter())
    index = index_labels(opened, split, ConsoleReporter(), cache=not no_cache)
    found = data_stats(index, opened.classes)
    title = f"{config.name}, {split}: {found.images:,} images"
    held_out = _held_out(config, scenario, split, index.ids)
    if plot is not None:
        from faircl.report.data_plots import write_distribution

        words = f"{title}, {len(found.classes)} classes, entropy {found.entropy:.3f}"
        write_distribution(plot, words, found, opened.classes, steps)
        ConsoleReporter().say(f"plot: {plot}")
    if as_json:
        print_json({"data": config.name, "split": split, "validation_images": held_out, **found.to_json(steps)})
        return
    from faircl.cli.data_view import print_stats

    print_stats(Output(form), title, found, steps, held_out)


@app.command()
def check(
    data: Data,
    root: Root = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Split to check; may be repeated. Default: those of the run.")
    ] = None,
    masks_only: Annotated[bool, typer.Option("--masks-only", help="Leave the images alone.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Name every file, not the first of each kind.")] = False,
    overrides: DataSet = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Decode every image and mask and list all that is wrong: exit code 1 if there are errors, 0 if not.

    [bold]Examples[/bold]

    faircl data check --data folder --root data/street

    faircl data check --data folder --root data/street --split train --masks-only

    faircl data check --data voc --root VOCdevkit --split train --split val --json
    """
    from faircl.data.file_data import FileData
    from faircl.integrity.check import check_data
    from faircl.progress import ConsoleReporter

    config, _ = data_settings(data, root, settings=overrides)
    opened = config.open()
    for part in (part for name in split or () for part in name.split("+")):
        if isinstance(opened, FileData):
            opened.check_split(part)  # a mistyped name is not a fault of the data
    if config.auxiliary_maps("saliency") is not None:
        ConsoleReporter().say("note: saliency maps are not looked at here; training looks at them before it begins")
    used = split or (config.train, config.test, *config.validation_splits)
    report = check_data(opened, used, ConsoleReporter(), images=not masks_only)
    if as_json:
        print_json(report.to_json())
    else:
        from faircl.cli.data_view import print_report

        print_report(Output(form), report, everything)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="Data set to prepare: voc.")],
    root: Annotated[Path, typer.Option("--root", "-r", help="Folder of the data set.")],
    sbd: Annotated[Path, typer.Option("--sbd", help="Folder of the Semantic Boundaries Dataset.")],
    as_json: Json = False,
) -> None:
    """Make what a data set lacks: for voc, the masks and the list of its augmented training split.

    [bold]Examples[/bold]

    faircl data prepare voc --root VOCdevkit/VOC2012 --sbd benchmark_RELEASE
    """
    if name not in PREPARED:
        raise UserError(f"Nothing is prepared for '{name}'; expected one of: {', '.join(PREPARED)}.")
    from faircl.progress import ConsoleReporter
    from faircl.readers.voc_prepare import prepare_voc

    made = prepare_voc(root, sbd, ConsoleReporter())
    if as_json:
        print_json(made)
    else:
        print(", ".join(f"{key}: {value}" for key, value in made.items()))


@app.command()
def synth(
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Folder to write the data set into.")],
    images: Annotated[int, typer.Option(help="Training images.")] = 240,
    test_images: Annotated[int, typer.Option(help="Test images.")] = 80,
    size: Annotated[int, typer.Option(help="Side of an image in pixels.")] = 96,
    seed: Annotated[int, typer.Option(help="Seed of the scenes.")] = 0,
    classes: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Label these classes alone; otherwise all ten.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the built-in street scenes as a folder data set: images/, masks/ and classes.txt.

    [bold]Examples[/bold]

    faircl data synth --out data/street

    faircl data synth --out data/small --images 40 --test-images 10 --size 64 --seed 7

    faircl data synth --out data/kiosks --images 60 --seed 11 --classes kiosk
    """
    from faircl.progress import ConsoleReporter
    from faircl.readers.scenes import SceneData
    from faircl.readers.write_folder import write_folder

    scenes: SegmentationData = SceneData(images, test_images, size, seed)
    if classes is not None:
        from faircl.cli.names import comma_list
        from faircl.readers.some_classes import SomeClasses

        scenes = SomeClasses(scenes, comma_list(classes))
    counts = write_folder(scenes, ("train", "test"), out, ConsoleReporter())
    if as_json:
        print_json({"root": str(out), "images": counts, "classes": list(scenes.classes.names)})
    else:
        print(f"wrote {counts['train']} training and {counts['test']} test images to {out}")


def _held_out(config: ReaderConfig, scenario: ScenarioConfig, split: str, ids: Sequence[str]) -> int:
    """Return how many of a split's images are validation images; domain protocols choose them for each domain."""
    from faircl.scenario.validation import held_out_ids, matching_ids

    if split in config.validation_splits:
        return len(ids)
    if split != config.train or scenario.protocol not in (None, "classes"):
        return 0
    if isinstance(config.validation, float):
        return len(held_out_ids(ids, config.validation, config.validation_seed))
    return len(matching_ids(ids, config.validation_patterns))


def _steps(data: SegmentationData, scenario: ScenarioConfig) -> dict[int, int] | None:
    """Return the step that learns each id, where a task was given; background is there from step 0."""
    from faircl.scenario import split_classes
    from faircl.scenario.division import find_protocol

    if scenario.task is None:
        if scenario.order is not None:
            raise UserError("An order of the classes was given without a task; add one, as in --task 15-1.")
        return None
    if (protocol := find_protocol(data, scenario)) != "classes":
        raise UserError(f"Under protocol {protocol} all classes are learned at every step; leave the task out.")
    groups: Sequence[Sequence[int]] = split_classes(scenario.task, scenario.order, data.classes)
    background = {0: 0} if data.classes.background else {}
    return background | {id: step for step, ids in enumerate(groups) for id in ids}
