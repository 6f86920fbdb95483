"""``faircl.audit``, ``audit_model`` and ``audit_run``: results, limits, groups, files."""

import json
import shutil

import numpy as np
import pytest
import torch
from mask_folders import random_masks, write_masks

import faircl
from faircl.fairness.record_file import load_record

NAMES = ["road", "car", "rider", "sky", "sign"]


@pytest.fixture(scope="module")
def masks():
    return random_masks(3, 12, 5)


@pytest.fixture(scope="module")
def result(masks):
    return faircl.audit(masks[0].values(), masks[1].values(), NAMES, ids=list(masks[0]))


def test_by_hand():
    found = faircl.audit([np.array([[0, 0, 1, 1]])], [np.array([[0, 0, 0, 1]])], ["a", "b"]).to_json()
    assert list(found)[:6] == ["miou", "std", "gap", "error_gap", "worst", "classes"]
    assert found["miou"] == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)
    assert found["std"] == pytest.approx(100 * (2 / 3 - 1 / 2) / 2)
    assert found["gap"] == pytest.approx(100 * (2 / 3 - 1 / 2))
    assert found["error_gap"] == pytest.approx(50)
    assert found["worst"] == {"name": "b", "iou": pytest.approx(50)}
    assert [{key: one[key] for key in ("id", "name", "iou", "accuracy", "pixels")} for one in found["classes"]] == [
        {"id": 0, "name": "a", "iou": pytest.approx(100 * 2 / 3), "accuracy": 100, "pixels": 2},
        {"id": 1, "name": "b", "iou": 50, "accuracy": 50, "pixels": 2},
    ]


def test_files_of_an_audit(result, tmp_path):
    folder = result.save(tmp_path / "new" / "audit", "Audit of <b>me</b>")
    assert sorted(path.name for path in folder.iterdir()) == ["audit.json", "evaluation.npz", "report.html"]
    written = json.loads((folder / "audit.json").read_text())
    assert written == {"title": "Audit of <b>me</b>", **json.loads(json.dumps(result.to_json()))}
    assert written["lineage"] == {"faircl": faircl.__version__, "images": 12}
    assert (load_record(folder / "evaluation.npz").confusion() == result.record.confusion()).all()
    result.save(folder)  # replaces it
    assert faircl.audit_run(folder).audit.to_json() == result.audit.to_json()


def test_folders_that_hold_something_else_are_kept(result, tmp_path, tiny_run):
    (tmp_path / "notes.txt").touch()
    for folder in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(faircl.UserError, match="holds no audit"):
            result.save(folder)
    for folder in (tiny_run.path, tiny_run.path / "steps/00"):
        with pytest.raises(faircl.UserError, match="holds no audit"):
            result.save(folder)
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped/evaluation.npz").touch()  # a save that was interrupted
    assert (result.save(tmp_path / "stopped") / "audit.json").is_file()


def test_groups(masks, result):
    rows = {id: {"city": "Ulm" if k < 5 else "Bonn"} for k, id in enumerate(masks[0])}
    found = faircl.audit(masks[0].values(), masks[1].values(), NAMES, ids=list(masks[0]), groups=rows)
    (city,) = found.audit.groups
    alone = faircl.audit(list(masks[0].values())[:5], list(masks[1].values())[:5], NAMES).audit
    assert {group.value: group.images for group in city.groups} == {"Bonn": 7, "Ulm": 5}
    assert next(group.miou for group in city.groups if group.value == "Ulm") == pytest.approx(alone.miou)
    assert city.difference == pytest.approx(abs(city.groups[0].miou - city.groups[1].miou))


def test_limits_and_an_earlier_audit(masks, result, tmp_path):
    worse = {id: np.where(mask == 2, 0, mask) for id, mask in masks[1].items()}  # no rider is predicted any more
    found = faircl.audit(
        masks[0].values(),
        worse.values(),
        NAMES,
        ids=list(masks[0]),
        before=result.save(tmp_path / "audit"),
        limits={"max_drop": 3, "min_miou": 1, "min_class_iou": {"sky": 5}},
    )
    assert {one.of for one in found.broken} == {"", "rider", "road"}
    assert found.difference.miou.difference == pytest.approx(found.audit.miou - result.audit.miou)
    again = faircl.audit_run(tmp_path / "audit", before=result, limits={"max_drop": 0})
    assert again.broken == ()
    assert again.notes == ()
    renamed = faircl.audit(
        masks[0].values(), masks[1].values(), [*NAMES[:4], "plate"], ids=list(masks[0]), before=result
    )
    assert renamed.notes == ("id 4 is 'plate' here and 'sign' in the earlier audit; classes are compared by id",)


def test_a_run_is_audited_from_its_record(tiny_run):
    run = faircl.open_run(tiny_run.path)
    last, first = faircl.audit_run(run), faircl.audit_run(tiny_run.path, 0)
    assert last.audit.miou == pytest.approx(run.final.groups["all"].miou)
    assert last.audit.std == pytest.approx(run.final.groups["all"].std)
    assert len(first.audit.classes) == len(run.steps[0].classes)
    assert last.lineage == {"images": last.audit.images, "run": run.folder.name, "step": 1}
    assert faircl.audit_run(run, 1, before=tiny_run.path, limits={"max_drop": 0}).broken == ()
    with pytest.raises(faircl.UserError, match=r"no evaluation of step 7; it has: 0, 1"):
        faircl.audit_run(run, 7)
    with pytest.raises(faircl.UserError, match=r"no evaluation of step -3; it has: 0, 1"):
        faircl.audit_run(run, -3)
    assert [faircl.audit_run(run, step).lineage["step"] for step in (-1, -2)] == [1, 0]


def test_a_model_is_audited_as_its_masks(masks):
    labels = torch.stack([torch.from_numpy(mask) for mask in masks[0].values()])
    guesses = torch.stack([torch.from_numpy(mask) for mask in masks[1].values()]).long()
    logits = 4 * torch.nn.functional.one_hot(guesses, 5).permute(0, 3, 1, 2).float()
    loader = [(logits[k : k + 4], labels[k : k + 4]) for k in range(0, 12, 4)]  # the images are the logits
    found = faircl.audit_model(torch.nn.Identity(), loader, NAMES, ids=list(masks[0]), limits={"max_std": 100})
    other = faircl.audit(masks[0].values(), masks[1].values(), NAMES, ids=list(masks[0]))
    assert [c.iou for c in found.audit.classes] == [c.iou for c in other.audit.classes]
    assert found.audit.calibration_error > 0
    assert np.isnan(other.audit.calibration_error)
    with pytest.raises(faircl.UserError, match="Unknown device 'gpu'"):
        faircl.audit_model(torch.nn.Identity(), loader, NAMES, device="gpu")


def test_a_run_that_lost_its_last_step(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    shutil.rmtree(run / "steps" / "01")
    for step in (None, -1):
        with pytest.raises(faircl.UserError, match=r"steps/01 is missing, though metrics\.jsonl has its evaluation"):
            faircl.audit_run(run, step)
    assert faircl.audit_run(run, 0).lineage["step"] == 0


def test_mistakes(masks, tmp_path):
    with pytest.raises(faircl.UserError, match="max_drop needs an earlier audit"):
        faircl.audit([], [], NAMES, limits={"max_drop": 1})
    with pytest.raises(faircl.UserError, match="one of each"):
        faircl.audit(tmp_path, [], NAMES)
    with pytest.raises(faircl.UserError, match="whose files name them"):
        faircl.audit(tmp_path, tmp_path, NAMES, ids=["a"])
    with pytest.raises(faircl.UserError, match="does not exist; give the folder of a run"):
        faircl.audit_run(tmp_path / "nowhere")
    with pytest.raises(faircl.UserError, match=r"has no evaluation\.npz"):
        faircl.audit_run(write_masks(tmp_path / "masks", masks[0]))
    (tmp_path / "evaluation.npz").write_bytes(b"no zip")
    with pytest.raises(faircl.UserError, match="damaged"):
        faircl.audit_run(tmp_path)
    with pytest.raises(faircl.UserError, match="leave --step out"):
        faircl.audit_run(tmp_path, 1)
