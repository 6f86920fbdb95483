"""Proposition 1: both sides of the inequality pixel by pixel, and what is recorded of them while training."""

import copy
import math
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import start
from pydantic import ValidationError
from tiny_steps import PERIOD, Run, World

from faircl.config.schema import OptimConfig, TrainConfig
from faircl.distributed import global_sum, rank_slice, world_size
from faircl.engine.loggers.train_log import TrainLog
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.runtime import make_fabric
from faircl.engine.update import Updater
from faircl.labels import IGNORE
from faircl.losses import cluster_loss
from faircl.methods.faircl import FairCLConfig, FairCLPaperConfig
from faircl.methods.faircl.bound import both_sides
from faircl.methods.feature_grid import to_stride
from faircl.methods.finetune import FineTune, FineTuneConfig
from faircl.methods.state import method_state
from faircl.report.plots import bound_curves
from faircl.runs.folder import RunFolder
from faircl.runs.run import TrainRecord, load_run

NAMES = ["moved", "bound", "tightness"]
PAGE = Path(__file__).parents[2] / "docs/proposition1.md"
both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(seed, classes=4, width=5, images=3, size=(4, 5)):
    gen = torch.Generator().manual_seed(100 + seed)
    labels = torch.randint(classes, (images, *size), generator=gen)
    labels[torch.rand(labels.shape, generator=gen) < 0.2] = IGNORE
    scale = 10.0 ** (seed % 5 - 2)  # radii from far smaller to far larger than the distances of prototypes
    new, old = (scale * draw(images, width, *size, seed=seed + k) for k in (1, 2))
    return new, old, labels, draw(classes, width, seed=seed)


# The inequality


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_it_holds_at_every_pixel(order):
    for seed in range(60):
        new, old, labels, prototypes = case(seed)
        sides = both_sides(new, old, labels, prototypes, torch.ones(4, dtype=torch.bool), order)
        assert sides.moved.dtype == torch.float64
        assert (sides.moved <= sides.bound * (1 + 1e-12)).all()
        assert (sides.moved > 0).all()
        tightness = sides.means()["tightness"].item()
        assert 0 < tightness <= 1


def test_it_is_equal_where_the_prototype_lies_between():
    for seed in range(20):
        prototype, way = draw(1, 6, seed=seed), draw(1, 6, 3, 3, seed=seed + 1)
        apart = torch.rand((1, 1, 3, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        new, old = (prototype[..., None, None] + way * length for length in (apart, apart - 1))
        sides = both_sides(new, old, torch.zeros(1, 3, 3).long(), prototype, torch.tensor([True]))
        torch.testing.assert_close(sides.moved, sides.bound, rtol=1e-12, atol=0)
        assert sides.means()["tightness"].item() == pytest.approx(1, abs=1e-12)


def test_independent_directions_reach_seven_tenths():
    new, old = draw(1, 512, 40, 40), draw(1, 512, 40, 40, seed=1)
    sides = both_sides(new, old, torch.zeros(1, 40, 40).long(), torch.zeros(1, 512), torch.tensor([True]))
    assert sides.means()["tightness"].item() == pytest.approx(math.sqrt(0.5), abs=0.01)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_sides_equal_a_plain_loop(order, seed):
    new, old, labels, prototypes = case(seed)
    active = torch.tensor([True, True, False, True])
    sums, count = [0.0, 0.0, 0.0], 0
    for b in range(3):
        for y in range(4):
            for x in range(5):
                c = labels[b, y, x].item()
                if c == IGNORE or not active[c]:
                    continue
                f, g, p = new[b, :, y, x].tolist(), old[b, :, y, x].tolist(), prototypes[c].tolist()
                pairs = ((f, g), (f, p), (g, p))
                way, to, back = (
                    sum(abs(a - b) ** order for a, b in zip(*pair, strict=True)) ** (1 / order) for pair in pairs
                )
                count += 1
                for k, value in enumerate((way, to + back, way / (to + back))):
                    sums[k] += value
    assert 0 < count < 60
    found = both_sides(new, old, labels, prototypes, active, order).means()
    assert list(found) == NAMES
    assert [value.item() for value in found.values()] == pytest.approx([s / count for s in sums], abs=1e-9)


def test_the_bound_is_the_pull_at_both_times():
    new, old, labels, prototypes = case(3)
    active = torch.tensor([True, False, True, True])
    found = both_sides(new, old, labels, prototypes, active).means()["bound"]
    pulls = [cluster_loss(f, labels, prototypes, active, 10.0).pull for f in (new, old)]
    torch.testing.assert_close(found, sum(pulls))


def test_no_pixel_and_no_distance():
    new, old, labels, prototypes = case(0)
    none = both_sides(new, old, torch.full_like(labels, IGNORE), prototypes, torch.ones(4, dtype=torch.bool)).means()
    assert [value.item() for value in none.values()] == [0, 0, 0]
    same = prototypes[:1, :, None, None].expand(1, -1, 2, 2)
    still = both_sides(same, same, torch.zeros(1, 2, 2).long(), prototypes, torch.ones(4, dtype=torch.bool)).means()
    assert [value.item() for value in still.values()] == [0, 0, 1]
    with pytest.raises(ValueError, match="features of one shape are compared"):
        both_sides(new, old[:, :3], labels, prototypes, torch.ones(4, dtype=torch.bool))


def shared_work():
    new, old, labels, prototypes = case(5, images=5)
    active = torch.tensor([True, False, True, True])
    means = both_sides(*(rank_slice(x) for x in (new, old, labels)), prototypes, active).means()
    return [(global_sum(value) / world_size()).item() for value in means.values()]


@pytest.mark.slow
def test_several_processes_are_as_one():
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    alone = shared_work()
    for found in start(2, shared_work):
        assert found == pytest.approx(alone, abs=1e-12)


# The page


def test_the_counter_examples_of_the_page():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 1
    assert blocks[0].count("assert ") >= 6
    found: dict[str, object] = {}
    exec(compile(blocks[0], str(PAGE), "exec"), found)
    # Said again here, so that the page cannot lose its point together with its assertions.
    assert found["collapsed"] == (0.0, 3.0)
    assert found["swapped"] == (found["still"][0], 6.0)
    radii, drifts = (list(column) for column in zip(*found["turning"], strict=True))
    assert radii == sorted(radii, reverse=True)
    assert drifts == sorted(drifts)
    assert drifts[-1] > 5 > drifts[0]


# The method


def bound_run(background=True, **options):
    return Run(World(background), period=PERIOD, quota=20, queue=50, bound=True, **options)


def measured(r, batch):
    with torch.no_grad():
        out, old = r.model(batch.image), r.teacher(batch.image)
        targets = r.method.targets(batch, out, old)
        return r.method.measures(batch, out, old, targets), out, old, targets


@both_worlds
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"embedding": "backbone", "distance_order": 3.0},
        {"normalise": True, "margin": 1.0, "scale_margin": False},
        {"unlabelled": "unbiased"},
        {"unlabelled": "teacher", "assign": "prototype"},
        {"name": "faircl"},
    ],
    ids=["paper", "backbone", "unit", "unbiased", "teacher", "soft"],
)
def test_measures_by_hand(options, background):
    r = bound_run(background, **options).begin(0)
    assert r.teacher is None
    batch, out, targets, _ = r.forward()
    assert r.method.measures(batch, out, None, targets) == {}
    r.iterate(4)
    r.end().begin(1).iterate(2 * PERIOD)
    batch = r.batch()
    found, out, old, targets = measured(r, batch)
    assert list(found) == NAMES
    new, was = (o.stages[-1] if "embedding" in options else o.embedding for o in (out, old))
    if "normalise" in options:
        new, was = (torch.nn.functional.normalize(f, dim=1) for f in (new, was))
    labels = to_stride(targets, new.shape[-2:])
    if options.get("unlabelled") == "unbiased" or "name" in options:
        soft = "name" in options
        guess = batch.soft.likeliest() if soft else out.logits[:, : r.context.old_classes].argmax(1)
        labels = to_stride(batch.labels, new.shape[-2:])
        labels = labels.where(labels != r.context.unlabelled, guess)
        assert not torch.equal(labels, to_stride(targets, new.shape[-2:]))
    bank = r.method.bank
    order = options.get("distance_order", 2.0)
    sides = both_sides(new, was, labels, bank.prototypes, bank.ready, order)
    assert {k: v.item() for k, v in found.items()} == {k: v.item() for k, v in sides.means().items()}
    assert 0 < found["moved"] <= found["bound"]
    assert 0 < found["tightness"] <= 1


def test_without_the_setting_there_is_neither_teacher_nor_measure():
    r = Run(World()).to_step_one(2)
    assert r.teacher is None
    batch, out, targets, _ = r.forward()
    assert r.method.measures(batch, out, out, targets) == {}


def test_a_wrapper_passes_measures_on():
    r = Run(World(), name="ewf", method={"name": "faircl", "bound": True, "period": PERIOD}).to_step_one(4)
    assert r.teacher is not None
    assert list(measured(r, r.batch())[0]) == NAMES


def test_measuring_leaves_state_and_gradients_alone():
    r = bound_run().to_step_one(4)
    before, numbers = copy.deepcopy(method_state(r.method))
    found = measured(r, r.batch())[0]
    assert not any(value.requires_grad for value in found.values())
    after = r.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert method_state(r.method).numbers == numbers


def test_the_first_step_does_not_depend_on_it():
    assert Run(World()).method.step0_key() == Run(World(), bound=True).method.step0_key()


def test_it_needs_prototypes():
    with pytest.raises(ValidationError, match="bound needs prototypes"):
        FairCLPaperConfig(bound=True, lambda_cluster=0)
    FairCLPaperConfig(bound=True, lambda_cluster=1e-9)
    FairCLPaperConfig(bound=True, lambda_cluster=0, assign="prototype")
    FairCLConfig(bound=True, lambda_cluster=0)  # replay keeps them


# The engine


class Counting(FineTune):
    """Measures the number of its calls."""

    calls = 0

    def measures(self, batch, out, old, targets):
        assert not torch.is_grad_enabled()
        self.calls += 1
        return {"calls": torch.tensor(float(self.calls)), "broken": torch.tensor(math.nan)}


def test_measures_are_averaged_over_the_batches_of_an_update_and_taken_on_request():
    model = Run(World()).begin(0).model
    config = OptimConfig(accumulate=2)
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    network, optimizer = fabric.setup(model, make_optimizer(config, model, 0))
    method = Counting(FineTuneConfig(), model)
    updater = Updater(fabric, method, network, optimizer, make_schedule(config, optimizer, 10), config)
    batches = [World().batch(0)] * 4
    terms, measures = updater.update(batches, 0, 1, True).read()
    assert list(terms) == ["seg"]
    assert list(measures) == ["calls", "broken"]  # a measure that is not finite stops nothing
    assert measures["calls"] == 1.5
    assert updater.update(batches, 0, 2).read()[1] == {}
    assert method.calls == 2


def test_the_log_keeps_measures_apart_from_terms(tmp_path):
    log = TrainLog(RunFolder(tmp_path), 1)
    log.add(1, 5, 9, 0.1, {"seg": 2.0}, {"moved": 3.0})
    log.add(1, 6, 9, 0.1, {"seg": 2.0}, {})
    assert log.records[0]["measures"] == {"moved": 3.0}
    assert log.records[0]["loss"] == 2
    assert "measures" not in log.records[1]


def test_a_single_record_and_steps_without_measures_are_drawn():
    sides = dict(zip(NAMES, (1.0, 2.0, 0.5), strict=True))
    svg = bound_curves([TrainRecord(0, 3, 5, 1.0, {}), TrainRecord(2, 3, 5, 1.0, {}, sides)])
    assert "step 2" in svg
    assert "step 0" not in svg
    assert svg.startswith("<svg")


@pytest.fixture(scope="module")
def runs(tiny_train, tmp_path_factory):
    """The same run with and without measures, two batches to an update."""
    folder = tmp_path_factory.mktemp("bound")
    common = ("train.log_every=2", "optim.accumulate=2", "model.dropout=0.2", "train.epochs=1", "train.later_epochs=2")
    return [tiny_train(folder / str(bound), f"method.bound={bound}", *common, page=True) for bound in (True, False)]


def test_a_measured_run_is_the_same_run_bit_for_bit(runs):
    for step in (0, 1):
        for part in ("model", "method"):
            files = [run.step_path(step) / f"{part}.safetensors" for run in runs]
            assert files[0].read_bytes() == files[1].read_bytes()
    losses = [[(r["iteration"], r["loss"], r["terms"]) for r in run.records("train")] for run in runs]
    assert losses[0] == losses[1]


def test_records_hold_measures_of_later_steps_only(runs):
    given, without = (run.records("train") for run in runs)
    assert not any("measures" in record for record in without)
    assert [("measures" in record) for record in given] == [record["step"] > 0 for record in given]
    later = [record["measures"] for record in given if record["step"] > 0]
    assert later
    for measures in later:
        assert list(measures) == NAMES
        assert 0 < measures["moved"] <= measures["bound"]
        assert 0 < measures["tightness"] <= 1


def test_the_page_of_a_run_shows_both_sides(runs):
    pages = [(run.path / "report.html").read_text(encoding="utf-8") for run in runs]
    assert "Proposition 1" in pages[0]
    assert "moved / bound" in pages[0]
    assert "Proposition 1" not in pages[1].partition("How it was made")[0]
    read = [record.measures for record in load_run(runs[0].path).training]
    assert [list(m) for m in read if m] == [NAMES] * sum(bool(m) for m in read)
    assert any(read)
