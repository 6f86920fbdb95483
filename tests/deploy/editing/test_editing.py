"""Versions of a run whose classes were renamed, merged or dropped: predictions, state, ids, undo, further classes."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import faircl
from faircl.deploy.adding.added_step import Base
from faircl.errors import UserError
from faircl.readers.scenes import SceneData
from faircl.report.page import write_run_page
from faircl.runs.folder import RunFolder
from faircl.runs.versions import VersionChain

ROAD, BUILDING, TREE, CAR = 1, 2, 3, 4


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run.path, tmp_path / "run")


@pytest.fixture(scope="module")
def images():
    return torch.rand((2, 3, 40, 48), generator=torch.Generator().manual_seed(0))


def probabilities(run, images, version=None):
    with torch.no_grad():
        return faircl.load(run, device="cpu", version=version).network(images).logits.softmax(1)


def channels(run):
    return RunFolder(VersionChain(run).find(None)).load_scenario().channel_ids


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def state(run, version, step=0):
    return load_file(RunFolder(VersionChain(run).folder(version)).step_path(step) / "method.safetensors")


# ---- predictions


def test_a_merged_class_has_the_sum_of_the_probabilities(run, images):
    before = probabilities(run, images)
    version = faircl.merge_classes(run, ["car", "tree"], "thing")
    after, kept = probabilities(run, images), [c for c in range(11) if c not in (TREE, CAR)]
    assert (version.number, version.parent, version.kind, version.what) == (
        *(1, 0, "merge-classes"),
        "merged car, tree into thing",
    )
    assert channels(run) == (*range(3), *range(4, 11))  # the merged class has the first one's id
    merged = channels(run).index(CAR)
    torch.testing.assert_close(after[:, merged], before[:, CAR] + before[:, TREE])
    torch.testing.assert_close(after[:, [c for c in range(10) if c != merged]], before[:, kept])
    summed = torch.cat([before[:, :TREE], before[:, [TREE, CAR]].sum(1, keepdim=True), before[:, CAR + 1 :]], 1)
    assert torch.equal(after.argmax(1), summed.argmax(1))
    predictor = faircl.load(run)
    assert predictor.names[CAR] == "thing"
    assert TREE not in predictor.names


def test_a_dropped_class_leaves_its_pixels_to_the_others(run, images):
    before = probabilities(run, images)
    faircl.drop_classes(run, ["road", "cyclist"])
    kept = before[:, [0, *range(2, 10)]]
    torch.testing.assert_close(probabilities(run, images), kept / kept.sum(1, keepdim=True))
    assert channels(run) == (0, *range(2, 10))
    assert set(np.unique(faircl.load(run).predict(np.zeros((32, 32, 3), np.uint8)).mask)) <= set(channels(run))


def test_renaming_changes_no_weight_and_no_state(run, images):
    before = probabilities(run, images)
    version = faircl.rename_classes(run, {"car": "auto"})
    assert torch.equal(probabilities(run, images), before)
    assert version.model_sha256 == version.parent_sha256
    assert all(torch.equal(value, state(run, 0, 1)[name]) for name, value in state(run, 1).items())
    assert faircl.load(run).names[CAR] == "auto"
    assert faircl.load(run, version=0).names[CAR] == "car"


def test_edits_follow_each_other(run, images):
    before = probabilities(run, images)
    faircl.merge_classes(run, ["car", "tree"], "thing")
    faircl.rename_classes(run, {"thing": "stuff"})
    faircl.merge_classes(run, ["van", "stuff"], "stuff")
    torch.testing.assert_close(probabilities(run, images)[:, 3], before[:, 3:6].sum(1))
    assert channels(run)[3] == CAR
    faircl.drop_classes(run, ["stuff"])
    kept = before[:, [0, 1, 2, *range(6, 11)]]
    torch.testing.assert_close(probabilities(run, images), kept / kept.sum(1, keepdim=True))
    assert [one.kind.split("-")[0] for one in faircl.versions(run)] == ["merge", "rename", "merge", "drop"]
    assert [one.parent for one in faircl.versions(run)] == [0, 1, 2, 3]


# ---- what is written


def test_the_state_has_the_new_classes(run):
    before = state(run, 0, 1)
    faircl.merge_classes(run, ["car", "tree"], "thing")
    after = state(run, 1)
    share, prototypes = before["distribution.share"], before["bank.prototypes"]
    assert after["distribution.share"][3] == pytest.approx((share[TREE] + share[CAR]).item())
    weight = share[[TREE, CAR]] / share[[TREE, CAR]].sum()
    torch.testing.assert_close(after["bank.prototypes"][3], (weight[:, None] * prototypes[[TREE, CAR]]).sum(0))
    assert torch.equal(after["bank.prototypes"][4:], prototypes[5:])
    assert torch.equal(after["memory.filled"][:3], before["memory.filled"][:3])
    used = before["memory.filled"][BUILDING]
    assert torch.equal(after["memory.features"][BUILDING, :used], before["memory.features"][BUILDING, :used])
    assert len(after["memory.filled"]) == len(after["bank.ready"]) == 10
    numbers = json.loads((run / "versions/01/steps/00/method.json").read_text())["numbers"]
    assert (numbers["old_classes"], numbers["hides_classes"]) == (0, False)


def test_a_version_without_scores_can_be_read_as_any_run(run):
    faircl.drop_classes(run, ["road"])
    folder = run / "versions/01"
    opened = faircl.open_run(folder)
    assert RunFolder(folder).finished_steps() == 1
    assert np.isnan(opened.final.groups["all"].miou)
    assert [c.name for c in opened.final.classes] == [*opened.scenario.names]
    assert opened.scenario.pixels == tuple(p for c, p in enumerate(faircl.open_run(run).scenario.pixels) if c != ROAD)
    write_run_page(folder)


def test_undo_restores_the_bytes(run):
    before = contents(run)
    faircl.merge_classes(run, ["car", "tree"], "thing")
    assert {path: data for path, data in contents(run).items() if path.parts[0] != "versions"} == before
    between = contents(run)
    faircl.drop_classes(run, ["thing"])
    assert faircl.undo(run) == 2
    assert contents(run) == between
    assert faircl.undo(run) == 1
    assert contents(run) == before


@pytest.mark.parametrize("lost", ["steps/01/model.safetensors", "steps/01", "scenario.json", "metrics.jsonl"])
def test_undo_goes_back_to_nothing_that_is_lost(run, cli, lost):
    faircl.rename_classes(run, {"road": "street"})
    path = run / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents(run)
    result = cli("versions", "undo", run)
    assert (result.code, result.out, len(result.err.strip().splitlines())) == (2, "", 1)
    assert f"Version 1 of {run} is not undone, since version 0" in result.err
    assert f"{path} is missing" in result.err
    assert contents(run) == before


def test_undo_goes_back_to_nothing_that_is_damaged(run):
    for name in ("street", "way"):
        faircl.rename_classes(run, {{"street": "road", "way": "street"}[name]: name})
    weights = run / "versions/01/steps/00/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    before = contents(run)
    with pytest.raises(UserError, match=rf"version 1, which would then be in use, is not whole: {weights}"):
        faircl.undo(run)
    assert contents(run) == before
    weights.write_bytes(whole)
    (run / "versions/02/version.json").write_text("damaged")  # what is removed need not be whole
    (run / "versions/02/steps/00/model.safetensors").unlink()
    assert faircl.undo(run) == 2
    assert faircl.load(run).names[ROAD] == "street"


def test_a_copy_leaves_the_run_alone(run, tmp_path):
    before = contents(run)
    faircl.drop_classes(run, ["road"], out=tmp_path / "copy")
    assert contents(run) == before
    assert faircl.load(tmp_path / "copy").names.keys() == faircl.load(run).names.keys() - {ROAD}


# ---- what is refused


def test_nothing_is_written_where_a_class_is_unknown(run, tmp_path):
    before = contents(run)
    for out in (None, tmp_path / "copy"):
        with pytest.raises(UserError, match="Did you mean 'car'"):
            faircl.drop_classes(run, ["cat"], out)
    assert contents(run) == before
    assert not (run / "versions").exists()
    assert not (tmp_path / "copy").exists()


def test_an_output_that_is_there_or_inside_the_run_is_refused(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        faircl.drop_classes(run, ["road"], tmp_path / "full")
    with pytest.raises(UserError, match="lies inside"):
        faircl.drop_classes(run, ["road"], run / "copy")
    assert not (run / "copy").exists()


def test_an_unfinished_version_is_finished_or_undone_first(run, tmp_path):
    begun = run / "versions/01"
    begun.mkdir(parents=True)
    shutil.copy(run / "config.yaml", begun)
    with pytest.raises(UserError, match=r"Version 1 of .* is unfinished"):
        faircl.drop_classes(run, ["road"])
    faircl.drop_classes(run, ["road"], tmp_path / "copy")
    assert VersionChain(tmp_path / "copy").unfinished() is None


def test_a_failed_write_leaves_nothing(run, tmp_path, monkeypatch):
    before = contents(run)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("faircl.deploy.editing.edit.save_step", full)
    for out in (None, tmp_path / "copy"):
        with pytest.raises(UserError, match="No space left"):
            faircl.drop_classes(run, ["road"], out)
    assert contents(run) == before
    assert not (tmp_path / "copy").exists()


def test_a_text_is_not_a_list_of_classes(run):
    with pytest.raises(UserError, match=r"\['road'\]"):
        faircl.drop_classes(run, "road")


def test_damaged_groups_are_refused(run):
    faircl.merge_classes(run, ["car", "tree"], "thing")
    path = run / "versions/01/steps/00"
    (path / "SHA256SUMS").unlink()
    about = json.loads((path / "model.json").read_text())
    assert about["groups"][3] == [3, 4]
    for groups in (None, [[0, 0]], [[0], []], [["0"]], [list(range(12))], [[1], [2]]):
        (path / "model.json").write_text(json.dumps(about | {"groups": groups}))
        with pytest.raises(UserError, match="no valid groups"):
            faircl.load(run)


# ---- other methods


@pytest.mark.slow
def test_a_model_of_another_method_keeps_its_network_alone(tiny_train, tmp_path, images, silent):
    run = tiny_train(tmp_path / "mib", "method={name: mib}").path
    before, reporter = probabilities(run, images), silent()
    faircl.drop_classes(run, ["road"], reporter=reporter)
    kept = before[:, [0, *range(2, 11)]]
    torch.testing.assert_close(probabilities(run, images), kept / kept.sum(1, keepdim=True))
    assert "trained by mib" in reporter.said[0]
    base = Base.open(RunFolder(run / "versions/01"))
    assert base.config.method.name == "mib"
    assert not base.keeps_features  # so that added classes begin with statistics by the model's own predictions


@pytest.mark.slow
def test_sigmoids_are_not_merged(tiny_train, tmp_path, images):
    run = tiny_train(tmp_path / "ssul", "method={name: ssul}").path
    with pytest.raises(UserError, match="one sigmoid per class"):
        faircl.merge_classes(run, ["road", "car"], "x")
    faircl.drop_classes(run, ["road"])
    faircl.rename_classes(run, {"car": "auto"})
    assert ROAD not in faircl.load(run).names


# ---- further classes


def write_new_class(root, name, source):
    """Write scenes whose masks label one class alone, under a name that no model knows."""
    data = SceneData(12, 4, 32, seed=5)
    for split in ("train", "test"):
        for id in data.ids(split):
            sample = data.read(split, id)
            for kind, pixels in (("images", sample.image), ("masks", (sample.mask == source).astype(np.uint8))):
                path = root / kind / split / f"{id}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    (root / "classes.txt").write_text(f"background\n{name}\n")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rename", "merge", "merge-background", "drop"])
def test_classes_are_added_after_an_edit(run, tmp_path, silent, kind):
    if kind == "rename":
        faircl.rename_classes(run, {"building": "house"})
    elif kind == "drop":
        faircl.drop_classes(run, ["building"])
    else:
        faircl.merge_classes(run, ["building", "background" if kind.endswith("background") else "road"], "thing")
    known = channels(run)
    version = faircl.add_classes(run, write_new_class(tmp_path / "new", "building", BUILDING), reporter=silent())
    assert version.accepted
    assert channels(run) == (*known, 11)
    folder = RunFolder(run / "versions/02")
    losses = [record["loss"] for record in folder.records("train")]
    assert losses
    assert np.isfinite(losses).all()
    assert all(torch.isfinite(value).all() for value in state(run, 2, 1).values())
    classifier = faircl.load(run).network.classifier
    assert classifier.classes == len(known) + 1
    assert (classifier.merged is not None) == kind.startswith("merge")
    faircl.merge_classes(run, ["car", "building"], "both")
    assert channels(run) == known
