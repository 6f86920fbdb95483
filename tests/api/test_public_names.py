"""What ``import faircl`` exports: a change of this list is a change of the public API."""

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import faircl

FUNCTIONS = {
    "add_classes": (
        "run, data=None, root=None, *, out=None, holdout=None, classes=None, same=None, labelled=None, complete=False, "
        "max_drop=3.0, max_class_drop=None, settings=None, resume=False, reporter=None"
    ),
    "adopt": (
        "source, out, *, classes=None, background=None, data=None, root=None, images=None, model=None, settings=None, "
        "reporter=None"
    ),
    "audit": (
        "labels, predictions, classes, *, groups=None, ignore=255, background=None, limits=None, before=None, "
        "ids=None, endings=('', ''), common=False, resize=False, reporter=None"
    ),
    "audit_model": (
        "model, loader, classes, *, device=None, groups=None, ignore=255, background=None, limits=None, before=None, "
        "ids=None, reporter=None"
    ),
    "audit_run": "run, step=None, *, groups=None, limits=None, before=None",
    "compare": "runs, names=None, out=None, *, anyway=False, against=None, published=True",
    "evaluate": ("run, step=None, root=None, convention=None, images=None, *, data=None, version=None, reporter=None"),
    "drop_classes": "run, names, out=None, *, reporter=None",
    "export": "run, to, out, step=-1, *, opset=None, version=None, reporter=None",
    "global_mean": "total, count",
    "global_sum": "value",
    "gradient_norms": "run, step=-1, images=50, root=None, *, reporter=None",
    "list_methods": "",
    "list_networks": "",
    "list_readers": "",
    "list_recipes": "",
    "load": "run, step=-1, device='auto', *, version=None",
    "load_config": "source, settings=None",
    "merge_classes": "run, names, into, out=None, *, reporter=None",
    "open_data": "name, root=None, **settings",
    "open_run": "path",
    "open_scenario": (
        "data, root=None, *, task='offline', setting=None, protocol=None, order=None, convention='full', joint=False, "
        "settings=None, cache=True, reporter=None"
    ),
    "predict": (
        "run, images, out, *, step=-1, version=None, device='auto', batch=None, tile=None, overlap=None, flip=False, "
        "half=False, probabilities=False, unknown=False, overlay=True, skip_broken=False, resume=False, reporter=None"
    ),
    "register_method": "name, cls",
    "register_network": "name, cls",
    "register_reader": "name, cls",
    "rename_classes": "run, names, out=None, *, reporter=None",
    "resume": "run, settings=None, *, reporter=None",
    "serve": (
        "run, *, host='127.0.0.1', port=8765, device='auto', max_bytes=20000000, max_pixels=25000000, "
        "open_browser=False, reporter=None"
    ),
    "suggest_labels": (
        "run, images, out, *, data=None, root=None, to='folder', min_confidence=0.0, version=None, device='auto', "
        "reporter=None"
    ),
    "train": "recipe, out, settings=None, *, resume=False, reporter=None",
    "undo": "run",
    "upsampled_cross_entropy": (
        "logits, target, *, class_weight=None, offset=None, pixel_weight=None, grouped=0, focal=0.0"
    ),
    "versions": "run",
    "write_report": "run, out=None, *, step=None, version=None",
}
METHODS = {
    "AuditResult.broken": None,
    "AuditResult.save": "self, out, title='Audit'",
    "AuditResult.to_json": "self",
    "Comparison.class_table": None,
    "Comparison.summary": None,
    "Comparison.table": None,
    "Comparison.to_json": "self",
    "Prediction.areas": "self",
    "Prediction.colour_image": "self",
    "Prediction.overlay": "self, opacity=0.5",
    "Predictor.predict": (
        "self, image, *, tile=None, overlap=None, flip=False, half=False, probabilities=False, unknown=False"
    ),
    "Predictor.predict_many": (
        "self, images, *, batch=None, tile=None, overlap=None, flip=False, half=False, probabilities=False, "
        "unknown=False"
    ),
}
FIELDS = {
    "AuditResult": {"audit", "record", "limits", "difference", "notes", "lineage"},
    "Comparison": {"runs", "rows", "notes", "page", "against", "changes", "front", "levelled_down", "published"},
    "Export": {"path", "to", "step", "classes", "agreement", "pixels", "note"},
    "Prediction": {"mask", "names", "colours", "image", "background", "probabilities", "unknown"},
    "Run": {"folder", "steps"},
}
OTHERS = {
    *("BACKGROUND", "IGNORE", "UNLABELLED"),
    *(
        "AuditResult",
        "Comparison",
        "Export",
        "Prediction",
        "Predictor",
        "Run",
        "RunConfig",
        "Scenario",
        "StepMetrics",
        "Table",
        "Version",
    ),
    *("AssignedLabels", "Batch", "Method", "MethodConfig", "ModelConfig", "Needs", "ScannedBatch", "SegOutput"),
    *("Segmenter", "SoftBlock", "SoftLabels", "StepContext", "TeacherMethod", "Terms"),
    *("Classes", "FileConfig", "FileData", "FilePair", "Listing", "MaskCoding", "Reader", "ReaderConfig", "Sample"),
    *("Reporter", "SegmentationData", "SilentReporter", "UserError"),
}
DOCS = Path(__file__).parents[2] / "docs"


def exported() -> set[str]:
    """Names of ``dir(faircl)`` that are neither private nor modules nor left by an import."""
    left = {"TYPE_CHECKING", "annotations"}
    names = {name for name in dir(faircl) if not name.startswith("_")} - left
    return {name for name in names if not inspect.ismodule(getattr(faircl, name))}


def shape(function: object) -> str:
    """Return a function's parameters and defaults, without types."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))[1:-1]


def test_the_exported_names_are_these():
    assert exported() == set(FUNCTIONS) | OTHERS


def test_functions_take_these_arguments():
    assert {name: shape(getattr(faircl, name)) for name in FUNCTIONS} == FUNCTIONS


def test_what_they_return_has_these_parts():
    for path, expected in METHODS.items():
        owner, name = path.split(".")
        found = inspect.getattr_static(getattr(faircl, owner), name)
        assert (None if isinstance(found, property) else shape(found)) == expected
    for name, fields in FIELDS.items():
        assert fields <= set(getattr(faircl, name).__dataclass_fields__)
    assert {"config", "scenario", "final"} <= set(dir(faircl.Run))


def test_type_checkers_and_python_see_the_same_names():
    tree = ast.parse(Path(faircl.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert seen == faircl._HOME


def test_every_exported_name_is_explained():
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    for name in exported():
        assert re.search(rf"\b{name}\b", faircl.__doc__), f"{name} is not in the docstring of faircl"
        assert re.search(rf"`(faircl\.)?{name}\b", page), f"{name} is not in docs/python.md"
        assert getattr(faircl, name).__doc__


def test_help_is_a_page_to_read():
    page = pydoc.plain(pydoc.render_doc(faircl))
    assert page.index("faircl.train(") < page.index("PACKAGE CONTENTS") < page.index("FUNCTIONS")
    assert "private and may change" in page
    assert len(page.splitlines()) < 650
    assert max(map(len, faircl.__doc__.splitlines())) <= 120


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        faircl.trian  # noqa: B018


def test_importing_faircl_imports_neither_torch_nor_pydantic():
    code = (
        "import sys, faircl; dir(faircl); faircl.__version__; faircl.UserError; "
        "print(sorted({'torch', 'pydantic', 'numpy', 'yaml', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
