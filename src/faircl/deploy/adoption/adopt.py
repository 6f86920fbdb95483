"""Adoption from start to end: read, rename, check, describe, evaluate, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from faircl.config.run import RunConfig
from faircl.data.images import RGB
from faircl.data.sample import SegmentationData
from faircl.deploy.adoption.checks import check_output
from faircl.deploy.adoption.class_names import AdoptedClasses, adopted_classes, parse_names
from faircl.deploy.adoption.images import Batches, labelled_batches, unlabelled_batches
from faircl.deploy.adoption.matched_data import NetworkData
from faircl.deploy.adoption.read_source import read_source
from faircl.deploy.adoption.run_files import source_facts, write_run
from faircl.deploy.adoption.same_output import Agreement, check_same_output
from faircl.deploy.adoption.settings import model_settings, run_config
from faircl.deploy.adoption.source import Source
from faircl.deploy.input_files import find_images
from faircl.deploy.statistics import ClassDescription, describe_classes
from faircl.engine.evaluate import evaluate
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model, move_to_device
from faircl.engine.runtime import make_fabric, process_settings
from faircl.errors import listed
from faircl.fairness.record import EvaluationRecord
from faircl.methods.faircl import FairCL
from faircl.metrics import StepMetrics, summarise
from faircl.models.segmenter import Segmenter
from faircl.models.weights import load_modules
from faircl.progress import Reporter
from faircl.readers.base import FileConfig
from faircl.scenario import CONVENTIONS, Scenario
from faircl.scenario.class_steps import digest_labels
from faircl.scenario.scenario import Step


@dataclass(frozen=True)
class Wanted:
    """What is to be adopted, and how; see `faircl.adopt`."""

    source: Path
    out: Path
    classes: str | Path | Sequence[str] | None = None
    background: str | None = None
    data: dict[str, Any] | None = None
    images: Path | None = None
    model: str | None = None
    overrides: Sequence[str] = ()


def adopt_network(wanted: Wanted, reporter: Reporter) -> dict[str, Any]:
    """Write the run; return what its adopted.json says."""
    check_output(wanted.out)
    given = None if wanted.classes is None else parse_names(wanted.classes)
    files = [] if wanted.images is None else [path for path, _ in find_images([wanted.images], wanted.out)]
    source = read_source(wanted.source, model_settings(wanted.model, wanted.overrides))
    reporter.say(f"found {source.found} with {source.classes} classes ({source.library})")
    adopted = adopted_classes(source.names, given, source.classes, wanted.background)
    config = run_config(source.model, wanted.data, adopted.classes.background, wanted.overrides)
    config = config.model_copy(update={"data": config.data.absolute()})
    data = _matched(config, adopted) if wanted.data else None
    scenario = _scenario(config, adopted, data)
    notes = [*source.notes, *_class_notes(adopted, data)]
    for note in notes:
        reporter.say(f"note: {note}")
    with process_settings(config.train):
        network = _network(config, source, adopted)
        agreement = check_same_output(network, source, adopted.order)
        reporter.say(_agreement_words(source, agreement))
        fabric = make_fabric(config.train.model_copy(update={"precision": "fp32"}))
        move_to_device(network, fabric.device)
        method = make_method(config, network)
        assert isinstance(method, FairCL), "run_config refuses other methods"
        description = describe_classes(
            method, network, _batches(config, scenario, data, files, reporter), background=scenario.background
        )
        for sentence in _description_words(scenario, description):
            reporter.say(sentence)
        metrics, counted = _evaluate(config, scenario, network, data, reporter)
    about = source_facts(source) | {
        "agreement": None if agreement is None else agreement._asdict(),
        "images": {"labelled": data is not None, "count": description.images},
        "background": scenario.background,
        "classes": _class_facts(scenario, adopted, description, method),
        "notes": notes,
    }
    write_run(wanted.out, config, scenario, network, method, metrics, counted, about)
    return about


def _network(config: RunConfig, source: Source, adopted: AdoptedClasses) -> Segmenter:
    """Return faircl's network with the source's weights; its classifier's rows in the adopted order."""
    network = build_model(config, pretrained=False)
    label = f"network '{network.name}'"
    modules = {"backbone.": network.backbone, "decoder.": network.decoder}
    load_modules(modules, source.state, source=str(source.path), label=label)
    head = network.classifier.grow(source.classes)
    order = list(adopted.order)
    values = {"weight": source.weight[order][:, :, None, None], "bias": source.bias[order]}
    load_modules(
        {"classifier.": head}, {f"classifier.{k}": v for k, v in values.items()}, source=str(source.path), label=label
    )
    return network


def _matched(config: RunConfig, adopted: AdoptedClasses) -> NetworkData:
    return NetworkData(config.data.open(), adopted.classes, (config.data.train, config.data.test))


def _scenario(config: RunConfig, adopted: AdoptedClasses, data: NetworkData | None) -> Scenario:
    """Return a scenario of one step, which has no training image: what the network was trained on is not known."""
    classes = adopted.classes
    tested = () if data is None else tuple(data.ids(config.data.test))
    return Scenario(
        classes=classes,
        task="offline",
        setting="overlapped",
        steps=(Step(classes.foreground, (), tested),),
        learned_at=(0,) * len(classes.names),
        pixels=(0,) * len(classes.names),
        labels_sha256=digest_labels(),
        colours=adopted.colours or (() if data is None else data.colours()),
    )


def _batches(
    config: RunConfig, scenario: Scenario, data: SegmentationData | None, files: list[Path], reporter: Reporter
) -> Batches:
    batch = config.eval.batch
    if data is not None:
        split, table = config.data.train, scenario.test_table(0)
        return labelled_batches(data, split, table, batch, config.train.workers, reporter)
    reading = config.data.image_reading() if isinstance(config.data, FileConfig) else RGB
    return unlabelled_batches(files, reading, batch, reporter) if files else iter(())


def _evaluate(
    config: RunConfig, scenario: Scenario, network: Segmenter, data: SegmentationData | None, reporter: Reporter
) -> tuple[StepMetrics, EvaluationRecord | None]:
    """Evaluate the network on the test images; without labelled images every score is NaN and there is no record."""
    if data is None:
        channels = len(scenario.channel_ids)
        unknown = summarise(
            torch.zeros((channels, channels), dtype=torch.int64),
            ids=scenario.channel_ids,
            names=scenario.names,
            learned_at=scenario.learned_at,
            step=0,
            background=scenario.background,
        )
        return unknown, None
    return evaluate(
        network,
        data,
        config.data.test,
        scenario,
        0,
        convention=CONVENTIONS[config.eval.convention],
        size=config.eval.size,
        batch=config.eval.batch,
        workers=config.train.workers,
        reporter=reporter,
    )


def _class_notes(adopted: AdoptedClasses, data: NetworkData | None) -> list[str]:
    notes = []
    if not adopted.classes.background:
        notes.append("no class is the background; --background NAME makes one of them so")
    if data is not None and data.unknown:
        notes.append(f"the network does not have these classes of the data, which are ignored: {listed(data.unknown)}")
    if data is not None and data.missing:
        notes.append(
            f"the data does not name {listed(data.missing)}; its unlabelled pixels may be of these, and are ignored"
        )
    return notes


def _agreement_words(source: Source, agreement: Agreement | None) -> str:
    if agreement is None:
        return "all weights fit; there is no other library to compare the network with"
    return (
        f"same output as {source.library.split()[0]} on random images: logits differ by at most "
        f"{agreement.difference:.0e} of the largest, {100 * agreement.same_pixels:.3f} % of the pixels have the same "
        "class"
    )


def _description_words(scenario: Scenario, description: ClassDescription) -> list[str]:
    """Say how many classes have features, and what the others lack."""
    seen = description.features > 0
    without, doubtful = (
        [name for name, marked in zip(scenario.names, marks.tolist(), strict=True) if marked]
        for marks in (~seen, description.doubtful)
    )
    if not description.images:
        return [
            "note: no images were given, so there are no features and no prototypes: when classes are added, these are "
            "kept by soft labels alone, without prototype replay, and all count as equally frequent; give some with "
            "--data or --images"
        ]
    words = [f"{int(seen.sum())} of {len(scenario.names)} classes have features, from {description.images} images"]
    if without:
        words.append(f"note: no feature of {listed(without)} was found, so there is no prototype replay of these")
    if doubtful:
        words.append(f"note: the network is in doubt wherever it sees {listed(doubtful)}; their features are uncertain")
    return words


def _class_facts(
    scenario: Scenario, adopted: AdoptedClasses, description: ClassDescription, method: FairCL
) -> list[dict[str, Any]]:
    remembered = method.config.replay if method.config.lambda_replay > 0 else 0
    kept = description.features.clamp_max(remembered).tolist()
    share = method.distribution.share.tolist()
    rows = zip(scenario.channel_ids, scenario.names, adopted.order, kept, share, strict=True)
    return [
        {"id": id, "name": name, "source_channel": channel, "features": features, "share": part}
        for id, name, channel, features, part in rows
    ]
