"""Evaluation at the size of each image, compared with a plain loop; evaluation of saved runs."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from faircl.data.label_index import index_labels
from faircl.data.masks import write_mask
from faircl.engine.evaluate import evaluate, predict_masks
from faircl.engine.reevaluate import evaluate_again
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.metrics import StepMetrics
from faircl.models.small import Small, SmallConfig
from faircl.readers.folder import FolderData
from faircl.scenario import build_scenario

SIZES = ((24, 40), (24, 40), (33, 17), (48, 48), (9, 21), (48, 48))


@pytest.fixture
def mixed(tmp_path):
    """Images of different sizes with ignored pixels, three classes and background."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for k, (height, width) in enumerate(SIZES):
            mask = rng.integers(0, 4, (6, 6)).astype(np.uint8).repeat(8, 0).repeat(8, 1)[:height, :width]
            mask[:2, :3] = 255
            image = (mask[..., None] * [30, 60, 80] + rng.integers(0, 40, (height, width, 3))).clip(0, 255)
            for kind in ("images", "masks"):
                (tmp_path / kind / split).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.astype(np.uint8)).save(tmp_path / "images" / split / f"{k}.png")
            write_mask(tmp_path / "masks" / split / f"{k}.png", mask)
    (tmp_path / "classes.txt").write_text("background\na\nb\nc\n")
    return FolderData(tmp_path)


def plain_counts(model, data, scenario, step) -> np.ndarray:
    """Count one image and one pixel at a time."""
    counts = np.zeros((scenario.channels(step),) * 2, np.int64)
    for id in scenario.steps[step].test_images:
        sample = data.read("test", id)
        image = torch.from_numpy(sample.image).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            logits = model(image).logits
        size = sample.mask.shape
        prediction = F.interpolate(logits, size, mode="bilinear", align_corners=False)[0].argmax(0).numpy()
        for raw, found in zip(sample.mask.ravel().tolist(), prediction.ravel().tolist(), strict=True):
            label = scenario.test_table(step)[raw]
            if label != IGNORE:
                counts[label, found] += 1
    return counts


def ious(counts: np.ndarray) -> list[float]:
    return [100 * counts[c, c] / (counts[c].sum() + counts[:, c].sum() - counts[c, c]) for c in range(len(counts))]


@pytest.mark.parametrize("step", [0, 1])
def test_images_of_different_sizes_equal_a_plain_loop(mixed, step, silent):
    train, test = (index_labels(mixed, split) for split in ("train", "test"))
    scenario = build_scenario(mixed.classes, ((3, 1), (2,)), train, test, task="2-1")
    torch.manual_seed(0)
    model = Small(SmallConfig(width=8, embedding=8)).train()
    for size in (3, 1)[: step + 1]:
        model.classifier.grow(size)
        torch.nn.init.normal_(model.classifier.heads[-1].weight)
    model(torch.rand(4, 3, 32, 32))  # changes the running statistics
    metrics, record = evaluate(model, mixed, "test", scenario, step, batch=1, workers=0, reporter=silent())
    examples = predict_masks(model, mixed, "test", scenario.steps[step].test_images[:4], scenario)
    assert model.training  # the mode is restored
    counts = plain_counts(model.eval(), mixed, scenario, step)
    assert [c.pixels for c in metrics.classes] == counts.sum(1).tolist()
    assert record.images == scenario.steps[step].test_images
    assert record.confusion()[:, :-1].tolist() == counts.tolist()
    assert [c.iou for c in metrics.classes] == pytest.approx(ious(counts), abs=1e-9)
    assert sum(c.pixels for c in metrics.classes) == sum((h * w - 6) for h, w in SIZES)  # all but ignored pixels
    assert [mask.shape for mask in examples] == list(SIZES[:4])
    assert set(np.unique(np.concatenate([m.ravel() for m in examples]))) <= set(scenario.channel_ids)
    # Batches of images of one size may only change rounding.
    grouped, _ = evaluate(model, mixed, "test", scenario, step, batch=4, workers=2, reporter=silent())
    assert [c.iou for c in grouped.classes] == pytest.approx([c.iou for c in metrics.classes], abs=0.2)


def test_examples_are_in_the_data_sets_own_ids(mixed):
    train, test = (index_labels(mixed, split) for split in ("train", "test"))
    scenario = build_scenario(mixed.classes, ((3, 1),), train, test, task="2")
    model = Small(SmallConfig(width=8, embedding=8))
    head = model.classifier.grow(3)
    torch.nn.init.zeros_(head.weight)
    head.bias.data.copy_(torch.tensor([0.0, 5.0, 0.0]))  # always channel 1, which is raw id 3
    (mask,) = predict_masks(model, mixed, "test", ["0"], scenario)
    assert mask.dtype == np.uint8
    assert (mask == 3).all()


def test_training_and_evaluating_images_of_different_sizes(mixed, tiny_train, silent, tmp_path):
    folder = tiny_train(tmp_path / "run", "scenario.task=2-1", "train.epochs=2", "train.batch=2", root=mixed.root)
    assert Image.open(folder.step_path(1) / "examples/0.png").size == (40, 24)
    recorded = [StepMetrics.from_json(record) for record in folder.records("eval")]
    assert [m.to_json() for m in evaluate_again(folder, silent())] == [m.to_json() for m in recorded]


@pytest.mark.parametrize("recipe", ["demo", "demo-joint"])
def test_evaluating_again_gives_exactly_what_training_recorded(recipe, tiny_run, tiny_train, silent, tmp_path):
    folder = tiny_run if recipe == "demo" else tiny_train(tmp_path / "run", recipe=recipe)
    again = [metrics.to_json() for metrics in evaluate_again(folder, silent())]
    recorded = [{key: record[key] for key in again[0]} for record in folder.records("eval")]
    assert again == recorded
    assert evaluate_again(folder, silent(), step=0)[0].to_json() == recorded[0]


def test_moved_and_changed_data(street, tiny_train, silent, tmp_path):
    folder = tiny_train(tmp_path / "run", "method=finetune", "train.epochs=0.3", "train.later_epochs=0.3", root=street)
    moved = shutil.move(street, tmp_path / "elsewhere")
    with pytest.raises(UserError, match="does not exist"):
        evaluate_again(folder, silent())
    reporter = silent()
    found = evaluate_again(folder, reporter, root=tmp_path / "elsewhere")
    assert [m.to_json()["miou"] for m in found] == [r["miou"] for r in folder.records("eval")]
    assert not reporter.said
    for kind in ("images", "masks"):
        (tmp_path / "elsewhere" / kind / "test/test-00000.png").unlink()
    evaluate_again(folder, reporter, root=moved)
    assert "7 test images" in reporter.said[0]


def test_negative_steps_count_from_the_last(tiny_run, silent):
    for step in (-1, -2):
        (found,) = evaluate_again(tiny_run, silent(), step=step)
        assert found.step == 2 + step


def test_what_cannot_be_evaluated_again(tiny_run, silent, tmp_path):
    with pytest.raises(UserError, match="has no step 2; finished steps run from 0 to 1"):
        evaluate_again(tiny_run, silent(), step=2)
    with pytest.raises(UserError, match="has no step -3; counted from its last, steps go back to -2"):
        evaluate_again(tiny_run, silent(), step=-3)
    with pytest.raises(UserError, match="--root is for folder data"):
        evaluate_again(tiny_run, silent(), root=tmp_path)
