"""Networks from elsewhere learn a class; what they become is exported, edited and predicted with."""

import shutil

import numpy as np
import pytest
import torch
from foreign_networks import LABELS, make_deeplab, make_segformer
from PIL import Image
from street_folders import digests, street_folder
from tiny_runs import Silent

import faircl
from faircl.engine import step_results

QUICK = {"train.later_epochs": 1, "train.batch": 4, "train.crop": 64, "train.precision": "fp32", "train.workers": 0}
QUICK |= {"optim.later_lr": 1e-4}  # the networks have random weights


@pytest.fixture(autouse=True)
def _no_page(monkeypatch):
    monkeypatch.setattr(step_results, "write_run_page", lambda path: None)


@pytest.fixture(scope="module")
def vans(tmp_path_factory):
    return street_folder(tmp_path_factory.mktemp("vans") / "vans", ("van",), seed=5, images=6, size=64)


def adopted(kind, background, folder):
    """Adopt a network made here; its classes are LABELS, the first of which is the background, or no class is."""
    names = LABELS if background else LABELS[1:]
    if kind == "segformer":
        make_segformer(folder / "source", names)
        return faircl.adopt(folder / "source", folder / "run", reporter=Silent()).folder
    torch.save(make_deeplab("mobilenet_v3_large", len(names)).state_dict(), folder / "source.pth")
    return faircl.adopt(folder / "source.pth", folder / "run", classes=names, reporter=Silent()).folder


def tile_notes(run, tmp_path):
    """What is said of the size of tiles; the setting ``train.crop`` is larger."""
    Image.fromarray(np.full((40, 56, 3), 128, np.uint8)).save(tmp_path / "grey.png")
    reporter, out = Silent(), tmp_path / "out"
    faircl.predict(run, tmp_path / "grey.png", out, tile=64, overlap=0, device="cpu", reporter=reporter)
    shutil.rmtree(out)
    return [text for text in reporter.said if "smaller than the windows" in text]


def test_nothing_is_known_of_the_windows_of_an_adopted_network(tmp_path):
    run = adopted("segformer", True, tmp_path)
    assert tile_notes(run, tmp_path) == []
    faircl.rename_classes(run, {"cat": "kitten"}, reporter=Silent())
    assert tile_notes(run, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("kind", ["segformer", "deeplab"])
def test_an_adopted_network_learns_a_class(kind, background, vans, tmp_path):
    run = adopted(kind, background, tmp_path)
    before = digests(run)
    version = faircl.add_classes(run, vans, settings=QUICK | {"train.crop": 96}, reporter=Silent())
    assert version.accepted
    assert [one.name for one in version.changes] == [*(LABELS if background else LABELS[1:]), "van"]
    predictor = faircl.load(run, device="cpu")
    found = predictor.predict(np.full((40, 56, 3), 128, np.uint8), unknown=True)
    assert set(np.unique(found.mask)) <= set(predictor.names)
    assert np.isfinite(found.unknown).all()
    assert len(tile_notes(run, tmp_path)) == 1
    faircl.undo(run)
    assert digests(run) == before


@pytest.mark.slow
def test_a_version_is_exported_and_goes_on_elsewhere(vans, tmp_path):
    run = adopted("segformer", True, tmp_path)
    faircl.add_classes(run, vans, settings=QUICK, reporter=Silent())
    done = faircl.export(run, "huggingface", tmp_path / "hub", reporter=Silent())
    assert done.agreement >= 0.9999
    assert list(faircl.load(tmp_path / "hub", device="cpu").names.values()) == [*LABELS, "van"]
    fences = street_folder(tmp_path / "fences", ("fence",), seed=6, images=6, size=64)
    version = faircl.add_classes(tmp_path / "hub", fences, out=tmp_path / "next", settings=QUICK, reporter=Silent())
    assert version.what == "added fence"
    assert list(faircl.load(tmp_path / "next", device="cpu").names.values()) == [*LABELS, "van", "fence"]
    assert len(faircl.load(tmp_path / "next", device="cpu", version=0).names) == len(LABELS) + 1


@pytest.mark.slow
def test_merged_classes_are_exported_where_that_is_possible(tmp_path):
    run = adopted("segformer", True, tmp_path)
    faircl.merge_classes(run, ["cat", "dog"], into="animal", reporter=Silent())
    assert faircl.export(run, "onnx", tmp_path / "merged.onnx", reporter=Silent()).agreement >= 0.9999
    done = faircl.export(run, "huggingface", tmp_path / "hub", reporter=Silent())
    assert not (tmp_path / "hub" / "model.safetensors").exists()
    assert "merged" in done.note
    assert "animal" in faircl.load(tmp_path / "hub", device="cpu").names.values()
