"""Segmentation networks that learn new classes step by step, keep the old ones and treat rare classes fairly.

Train on a folder with images/{train,test}, masks/{train,test} and classes.txt, six classes first and four later, then
segment a photo (``faircl data synth --out data/street`` writes such a folder):

    import faircl

    settings = {"data.root": "data/street", "scenario.task": "6-4"}
    settings |= {"train.crop": 64, "train.epochs": 8, "train.later_epochs": 4}  # a quick try on small images
    run = faircl.train("folder", out="runs/mine", settings=settings)
    for metrics in run.steps:
        print(f"step {metrics.step}: mean IoU {metrics.groups['all'].miou:.1f} %")

    prediction = faircl.load(run).predict("photo.jpg")
    print(prediction.areas())
    prediction.overlay().save("overlay.png")

Run
    train               train all steps of a recipe, a YAML file or a RunConfig
    resume              continue a run that was stopped
    evaluate            evaluate the saved networks of a run again
    write_report        write the page of a run, one HTML file; returns its path
    compare             put runs side by side; returns a Comparison
    audit               how any model's masks treat every class; returns an AuditResult
    audit_model         the same of any torch model on a loader
    audit_run           the same of a run, from its saved evaluation
    gradient_norms      gradient norm of every class, with and without fairness terms
    load                load a step's network; returns a Predictor
    export              write a step's network as ONNX, for torch.export or Hugging Face; returns an Export
    adopt               make a network that was trained elsewhere the first step of a run
    predict             segment image files into a folder: masks, overlays, areas of all classes
    serve               show a local page that segments images and compares steps and versions
    load_config         read a recipe or YAML file with changed settings; returns a RunConfig

Add classes to a trained model
    add_classes         teach a model new classes without the old data; returns a Version
    rename_classes      give classes of a model other names; returns a Version
    merge_classes       make one class of several, without training; returns a Version
    drop_classes        take classes away, without training; returns a Version
    suggest_labels      label new images by a model, for people to correct
    versions            what a model has become since it was trained: a list of Version
    undo                remove the newest version

Open
    open_run            a run that was trained before; returns a Run
    open_data           a data set, by the name of its reader
    open_scenario       classes and images of every step; returns a Scenario

What these return; ``help(faircl.Run)`` and so on tell more
    Run                 folder, config, scenario, and the metrics after every step
    StepMetrics         IoU of every class, means over old, new and all classes, fairness between classes
    Predictor           predict(image) segments an array, tensor, Pillow image or file, predict_many(images) several
    Prediction          class ids at the image's own size, names, colours, areas, overlay
    Version             status, origin, and what each class gained or lost
    Export              path, format, and how far its masks agree with the network's
    AuditResult         measures, intervals and limits of an audit, its JSON and its files
    Comparison          rows, warnings, a Table and the page of compared runs
    RunConfig           every setting of a run
    Scenario            steps of a continual scenario
    Table               markdown, LaTeX, CSV

Methods, networks, readers and recipes by name; register your own
    list_methods, list_networks, list_readers, list_recipes
    register_method, register_network, register_reader

Write a method
    Method              base class; MethodConfig its settings, Needs what it asks for, StepContext what it knows
    Batch, SegOutput    what a loss is given: images and labels, the network's output
    Terms               what a loss returns: named tensors
    TeacherMethod       base class of methods that run the old network on every batch
    ScannedBatch, AssignedLabels    whole images before a step, and labels assigned to them
    SoftLabels, SoftBlock           class distributions of a step's fixed windows, and those of a scanned batch
    upsampled_cross_entropy, global_mean, global_sum
    BACKGROUND, IGNORE, UNLABELLED    label values with a meaning of their own

Write a network or a reader
    Segmenter           base class of networks; ModelConfig its settings
    Reader              describes a reader: its name, settings (ReaderConfig) and layout
    SegmentationData    what a reader opens; Classes and Sample are parts of it
    FileData            base class for image and mask files, with FileConfig, FilePair, Listing and MaskCoding

Errors and progress
    UserError           a mistake in data, settings or environment; its text says what to do
    Reporter            where progress is shown; SilentReporter shows none

These names are the public API. Everything else in the package is private and may change at any time.
The command line does the same things: ``faircl --help``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from faircl.api.adding import add_classes as add_classes
    from faircl.api.adding import undo as undo
    from faircl.api.adding import versions as versions
    from faircl.api.adopting import adopt as adopt
    from faircl.api.audit_result import AuditResult as AuditResult
    from faircl.api.auditing import audit as audit
    from faircl.api.auditing import audit_model as audit_model
    from faircl.api.auditing import audit_run as audit_run
    from faircl.api.comparing import Comparison as Comparison
    from faircl.api.comparing import compare as compare
    from faircl.api.configuring import load_config as load_config
    from faircl.api.editing import drop_classes as drop_classes
    from faircl.api.editing import merge_classes as merge_classes
    from faircl.api.editing import rename_classes as rename_classes
    from faircl.api.exporting import export as export
    from faircl.api.gradients import gradient_norms as gradient_norms
    from faircl.api.opening import open_data as open_data
    from faircl.api.opening import open_run as open_run
    from faircl.api.opening import open_scenario as open_scenario
    from faircl.api.predicting import Predictor as Predictor
    from faircl.api.predicting import load as load
    from faircl.api.predicting_files import predict as predict
    from faircl.api.prediction import Prediction as Prediction
    from faircl.api.registering import list_methods as list_methods
    from faircl.api.registering import list_networks as list_networks
    from faircl.api.registering import list_readers as list_readers
    from faircl.api.registering import list_recipes as list_recipes
    from faircl.api.registering import register_method as register_method
    from faircl.api.registering import register_network as register_network
    from faircl.api.registering import register_reader as register_reader
    from faircl.api.reporting import write_report as write_report
    from faircl.api.running import evaluate as evaluate
    from faircl.api.running import resume as resume
    from faircl.api.running import train as train
    from faircl.api.serving import serve as serve
    from faircl.api.suggesting import suggest_labels as suggest_labels
    from faircl.config.components import MethodConfig as MethodConfig
    from faircl.config.components import ModelConfig as ModelConfig
    from faircl.config.run import RunConfig as RunConfig
    from faircl.data.file_data import FileData as FileData
    from faircl.data.listing import FilePair as FilePair
    from faircl.data.listing import Listing as Listing
    from faircl.data.mask_coding import MaskCoding as MaskCoding
    from faircl.data.sample import Classes as Classes
    from faircl.data.sample import Sample as Sample
    from faircl.data.sample import SegmentationData as SegmentationData
    from faircl.deploy.exporting.export import Export as Export
    from faircl.distributed import global_mean as global_mean
    from faircl.distributed import global_sum as global_sum
    from faircl.errors import UserError as UserError
    from faircl.labels import BACKGROUND as BACKGROUND
    from faircl.labels import IGNORE as IGNORE
    from faircl.labels import UNLABELLED as UNLABELLED
    from faircl.loading.assigned_labels import AssignedLabels as AssignedLabels
    from faircl.loading.batch import Batch as Batch
    from faircl.loading.soft_labels import SoftBlock as SoftBlock
    from faircl.loading.soft_labels import SoftLabels as SoftLabels
    from faircl.losses.cross_entropy import upsampled_cross_entropy as upsampled_cross_entropy
    from faircl.methods.base import Method as Method
    from faircl.methods.base import ScannedBatch as ScannedBatch
    from faircl.methods.base import StepContext as StepContext
    from faircl.methods.base import TeacherMethod as TeacherMethod
    from faircl.methods.base import Terms as Terms
    from faircl.methods.needs import Needs as Needs
    from faircl.metrics.summary import StepMetrics as StepMetrics
    from faircl.models.segmenter import Segmenter as Segmenter
    from faircl.models.segmenter import SegOutput as SegOutput
    from faircl.progress import Reporter as Reporter
    from faircl.progress import SilentReporter as SilentReporter
    from faircl.readers.base import FileConfig as FileConfig
    from faircl.readers.base import Reader as Reader
    from faircl.readers.base import ReaderConfig as ReaderConfig
    from faircl.runs.run import Run as Run
    from faircl.runs.versions import Version as Version
    from faircl.scenario.scenario import Scenario as Scenario
    from faircl.tables import Table as Table

_HOMES = {
    "faircl.api.adding": ("add_classes", "undo", "versions"),
    "faircl.api.adopting": ("adopt",),
    "faircl.api.audit_result": ("AuditResult",),
    "faircl.api.auditing": ("audit", "audit_model", "audit_run"),
    "faircl.api.comparing": ("Comparison", "compare"),
    "faircl.api.configuring": ("load_config",),
    "faircl.api.editing": ("drop_classes", "merge_classes", "rename_classes"),
    "faircl.api.exporting": ("export",),
    "faircl.api.gradients": ("gradient_norms",),
    "faircl.api.opening": ("open_data", "open_run", "open_scenario"),
    "faircl.api.predicting": ("Predictor", "load"),
    "faircl.api.predicting_files": ("predict",),
    "faircl.api.prediction": ("Prediction",),
    "faircl.api.registering": (
        "list_methods",
        "list_networks",
        "list_readers",
        "list_recipes",
        "register_method",
        "register_network",
        "register_reader",
    ),
    "faircl.api.reporting": ("write_report",),
    "faircl.api.running": ("evaluate", "resume", "train"),
    "faircl.api.serving": ("serve",),
    "faircl.api.suggesting": ("suggest_labels",),
    "faircl.config.components": ("MethodConfig", "ModelConfig"),
    "faircl.config.run": ("RunConfig",),
    "faircl.data.file_data": ("FileData",),
    "faircl.data.listing": ("FilePair", "Listing"),
    "faircl.data.mask_coding": ("MaskCoding",),
    "faircl.data.sample": ("Classes", "Sample", "SegmentationData"),
    "faircl.deploy.exporting.export": ("Export",),
    "faircl.distributed": ("global_mean", "global_sum"),
    "faircl.errors": ("UserError",),
    "faircl.labels": ("BACKGROUND", "IGNORE", "UNLABELLED"),
    "faircl.loading.assigned_labels": ("AssignedLabels",),
    "faircl.loading.batch": ("Batch",),
    "faircl.loading.soft_labels": ("SoftBlock", "SoftLabels"),
    "faircl.losses.cross_entropy": ("upsampled_cross_entropy",),
    "faircl.methods.base": ("Method", "ScannedBatch", "StepContext", "TeacherMethod", "Terms"),
    "faircl.methods.needs": ("Needs",),
    "faircl.metrics.summary": ("StepMetrics",),
    "faircl.models.segmenter": ("SegOutput", "Segmenter"),
    "faircl.progress": ("Reporter", "SilentReporter"),
    "faircl.readers.base": ("FileConfig", "Reader", "ReaderConfig"),
    "faircl.runs.run": ("Run",),
    "faircl.runs.versions": ("Version",),
    "faircl.scenario.scenario": ("Scenario",),
    "faircl.tables": ("Table",),
}
"""Module of every exported name: imported when the name is first used, so that ``import faircl`` takes no time."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker takes the imports above for the exported names, and refuses any other
    # help(faircl) prints every name of __all__ in full. The base classes inherit thousands of lines from torch and
    # pydantic, so it holds the functions and what they return; dir(faircl) has all exported names.
    __all__ = [name for module, names in _HOMES.items() if module.startswith("faircl.api.") for name in names]

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'faircl' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})
