"""``bench_step`` times whole updates of a later step, with all terms of FairCL active."""

import pytest
import torch
from grids import grid

from faircl.bench import step as bench
from faircl.bench import updates
from faircl.bench.peers import make_plain_update
from faircl.bench.step import StepTime, bench_step
from faircl.bench.updates import BenchSize, UpdateCost
from faircl.config.run import resolve
from faircl.engine.network import build_model
from faircl.engine.runtime import make_fabric
from faircl.engine.update import Updater
from faircl.errors import UserError
from faircl.labels import BACKGROUND, IGNORE
from faircl.losses import importance_weights
from faircl.methods.faircl import FairCL
from faircl.methods.finetune import FineTune

METHODS = (("plain", "finetune"), ("ours", "faircl"))
PAPER = (("plain", "finetune"), ("ours", "faircl-paper"))
FEW = BenchSize(old_classes=4, classes=6, iterations=2, rounds=1)


def config(*settings, batch=2, crop=64, method="faircl"):
    model = {"name": "small", "width": 8, "embedding": 8}
    tree = {"data": "scenes", "model": model, "method": method, "optim": {"lr": 0.001}}
    return resolve(tree | {"train": {"batch": batch, "crop": crop}}, settings)


@pytest.fixture
def calls(monkeypatch):
    """Every call of FairCL.losses: its result and the state of the method."""
    seen, losses = [], FairCL.losses

    def watched(self, batch, out, old, targets):
        terms = losses(self, batch, out, old, targets)
        seen.append(
            {
                "old": self.old_classes,
                "updates": self.updates,
                "terms": {name: value.item() for name, value in terms.items()},
                "ready": self.bank.ready.clone(),
                "share": self.distribution.share.clone(),
                "batch": batch,
                "targets": targets,
                "teacher": old,
                "classes": out.logits.shape[1],
                "training": torch.is_grad_enabled() and out.logits.requires_grad,
            }
        )
        return terms

    monkeypatch.setattr(FairCL, "losses", watched)
    return seen


@pytest.mark.parametrize("name", ["faircl-paper", "faircl"])
def test_the_timed_updates_have_every_term_every_prototype_and_all_labels(name, calls, silent):
    """Assigned labels of the paper's terms, and soft labels of the default."""
    soft = name == "faircl"
    bench_step([config(method=name)], METHODS if soft else PAPER, FEW, silent())
    first, later = ([call for call in calls if bool(call["old"]) == later] for later in (False, True))
    assert first
    assert {call["classes"] for call in first} == {4}
    assert {call["old"] for call in later} == {4}
    timed = later[-FEW.iterations :]
    assert len(timed) < len(later)  # the first ones are warm-up
    for call in timed:
        assert call["training"]
        assert call["classes"] == 6
        assert set(call["terms"]) == ({"seg", "replay", "iou"} if soft else {"seg", "cluster", "cons"})
        assert all(value > 0 for value in call["terms"].values())
        assert call["ready"].tolist() == [True] * 6
        weights = importance_weights(call["share"] / call["share"].sum(), 0.5, (0.2, 5.0))
        assert weights.max() > 1.2 * weights.min()  # L_class weighs classes
        labels, targets, assigned = call["batch"].labels, call["targets"], call["batch"].assigned
        hidden = labels == BACKGROUND
        assert torch.equal(targets, torch.where(hidden, IGNORE if soft else assigned, labels))
        assert set(assigned[hidden].tolist()) == {0, 1, 2, 3}
        given = call["batch"].soft
        assert (tuple(given.shares.shape) if given else None) == ((len(labels), 16, 16, 4) if soft else None)
        assert set(targets[~hidden].tolist()) == {4, 5}


@pytest.mark.slow
def test_a_period_longer_than_the_warm_up_is_waited_for(calls, silent):
    bench_step([config("method.period=12", "method.lambda_cluster=0.02")], METHODS, FEW, silent())
    for call in calls[-FEW.iterations :]:
        assert call["updates"] >= 12
        assert call["terms"]["cluster"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "terms"),
    [
        ("method.unlabelled=teacher", {"seg", "replay", "iou"}),
        ("method.fairness=kl", {"seg", "replay", "class", "iou"}),
        ("method.lambda_cluster=0.02", {"seg", "replay", "cluster", "iou"}),
        ("method.lambda_cons=1", {"seg", "replay", "cons", "iou"}),
        ("method.lambda_iou=0", {"seg", "replay"}),
    ],
)
def test_the_methods_own_settings_count(setting, terms, calls, silent):
    bench_step([config(setting)], METHODS, FEW, silent())
    assert set(calls[-1]["terms"]) == terms
    assert (calls[-1]["teacher"] is not None) == ("teacher" in setting)


@pytest.mark.slow
def test_methods_see_the_same_images(calls, silent, monkeypatch):
    plain, losses = [], FineTune.losses
    monkeypatch.setattr(
        FineTune, "losses", lambda self, batch, *rest: [plain.append(batch), losses(self, batch, *rest)][1]
    )
    bench_step([config()], METHODS, FEW, silent())
    assert len(plain) == len(calls)
    for one, other in zip(plain, calls, strict=True):
        assert torch.equal(one.image, other["batch"].image)
        assert torch.equal(one.labels, other["batch"].labels)
    assert any(not torch.equal(one.image, plain[0].image) for one in plain)


# ---- the numbers


class Clock:
    """A fake clock: 20 ms for an update of fine-tuning, 50 ms for one of FairCL."""

    def __init__(self, monkeypatch):
        self.now, self.updates = 0.0, []
        update = Updater.update

        def counted(updater, batches, step, iteration):
            made = update(updater, batches, step, iteration)
            self.now += 0.05 if isinstance(updater.method, FairCL) else 0.02
            self.updates.append((updater.method.name, step, iteration))
            return made

        monkeypatch.setattr(Updater, "update", counted)
        monkeypatch.setattr(updates, "synchronized_time", lambda device: self.now)


@grid("iterations", [1, 4])
def test_the_time_is_that_of_whole_updates(iterations, silent, monkeypatch):
    clock = Clock(monkeypatch)
    plain, ours = bench_step([config(crop=32)], METHODS, BenchSize(4, 6, iterations, 1), silent())
    assert (plain.milliseconds, ours.milliseconds) == pytest.approx((20, 50))
    assert (plain.images_per_second, ours.images_per_second) == pytest.approx((100, 40))
    assert ours.time_ratio == pytest.approx(2.5)
    later = [(name, iteration) for name, step, iteration in clock.updates if step == 1]
    assert later == [(name, number) for name in ("finetune", "faircl") for number in range(1, 9 + iterations)]


def test_rows_are_medians_and_ratios_to_the_first():
    timed = {
        "plain": [UpdateCost(seconds, 2 * 2**30, 1, 0) for seconds in (0.4, 0.1, 0.2)],
        "ours": [UpdateCost(seconds, 3 * 2**30, 2, 7) for seconds in (0.5, 0.3, 0.9)],
    }
    name = "small width=8 embedding=8"
    first, second = bench._rows(config("optim.accumulate=3", batch=4), 99, timed, "plain", memory=True)
    assert first == StepTime(name, "plain", 99, 200.0, (100.0, 400.0), pytest.approx(60), 2.0, 1.0, 1.0, None, 1, 0)
    spread, ratio = (300.0, 900.0), pytest.approx(2.5)
    assert second == StepTime(name, "ours", 99, 500.0, spread, pytest.approx(24), 3.0, ratio, 1.5, None, 2, 7)
    assert [row.memory_ratio for row in bench._rows(config(), 99, timed, "plain", memory=False)] == [None, None]


def test_speed_is_against_the_plain_eager_step():
    timed = {
        "plain eager": [UpdateCost(0.6, 0, 1, 0)],
        "plain compiled": [UpdateCost(0.3, 0, 1, 0)],
        "ours": [UpdateCost(0.2, 0, 1, 0)],
    }
    rows = list(bench._rows(config(), 99, timed, "ours", memory=False))
    assert [row.speed for row in rows] == pytest.approx([1, 2, 3])
    assert [row.time_ratio for row in rows] == pytest.approx([3, 1.5, 1])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["small", "{name: segformer, variant: b0}"])
def test_the_plain_peer_makes_real_updates(model, silent, monkeypatch):
    losses = []

    def watched(*args):
        update = make_plain_update(*args)
        return lambda: losses.append(update()) or losses[-1]

    monkeypatch.setattr(updates, "make_plain_update", watched)
    rows = bench_step([config(f"model={model}")], METHODS, FEW, silent(), ["eager"])
    assert [row.method for row in rows] == ["plain eager", "plain", "ours"]
    assert len(losses) == updates.WARMUP_UPDATES + FEW.iterations
    assert losses[-1] < losses[0]  # the one batch is learned
    assert rows[0].speed == 1


@pytest.mark.slow
def test_methods_take_turns(silent, monkeypatch):
    order, taken = [], iter([3.0, 6.0, 1.0, 5.0, 2.0, 4.0])

    def fake(config, name, model, fabric, size, reporter):
        order.append(name)
        return UpdateCost(next(taken), 0, 1, 0)

    monkeypatch.setattr(bench, "time_method", fake)
    plain, ours = bench_step([config()], METHODS, BenchSize(4, 6, 1, 3), silent())
    assert order == ["finetune", "faircl"] * 3
    assert (plain.milliseconds, plain.spread) == (2000, (1000, 3000))
    assert (ours.milliseconds, ours.spread, ours.time_ratio) == (5000, (4000, 6000), 2.5)


@pytest.mark.slow
def test_parameters_are_those_after_growing(silent, monkeypatch):
    counts, run_step = [], updates.run_step

    def watched(config, method, model, *rest, **named):
        result = run_step(config, method, model, *rest, **named)
        counts.append((model.classifier.classes, sum(p.numel() for p in model.parameters())))
        return result

    monkeypatch.setattr(updates, "run_step", watched)
    rows = bench_step([config(), config("model.width=16")], METHODS, FEW, silent())
    assert [classes for classes, _ in counts] == [4, 6] * 4
    assert [row.parameters for row in rows] == [count for _, count in counts[1::2]]
    assert rows[0].parameters < rows[2].parameters


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("{name: segformer, variant: b0}", "segformer b0"),
        ("{name: deeplabv3, backbone: resnet101, stride: 16}", "deeplabv3 resnet101 stride=16"),
        ("{name: timm, backbone: convnext_atto}", "timm convnext_atto"),
        ("small", "small width=8 embedding=8"),
    ],
)
def test_rows_name_the_network(model, label):
    (row,) = bench._rows(config(f"model={model}"), 9, {"plain": [UpdateCost(1.0, 0, 1, 0)]}, "plain", memory=False)
    assert row.model == label


@pytest.mark.slow
def test_a_network_is_timed_from_its_first_weights_every_time(silent, monkeypatch):
    starts, time_method = [], bench.time_method

    def watched(config, name, model, *rest):
        starts.append({key: value.clone() for key, value in model.state_dict().items()})
        return time_method(config, name, model, *rest)

    monkeypatch.setattr(bench, "time_method", watched)
    chosen = config()
    bench_step([chosen], METHODS, BenchSize(4, 6, 1, 2), silent())
    expected = build_model(chosen).state_dict()
    assert len(starts) == 4
    for start in starts:
        assert start.keys() == expected.keys()
        assert all(torch.equal(value, expected[key]) for key, value in start.items())


@pytest.mark.parametrize(("old", "classes"), [(6, 6), (7, 6), (1, 6), (0, 1), (-3, 6)])
def test_a_step_needs_old_and_new_classes(old, classes):
    with pytest.raises(UserError, match=f"found {old} old of {classes}; background counts as one") as caught:
        BenchSize(old, classes)
    assert "\n" not in str(caught.value)


def test_a_network_that_cannot_train_is_refused_before_it_is_timed(silent, monkeypatch):
    monkeypatch.setattr(bench, "time_method", lambda *_: pytest.fail("timed"))
    with pytest.raises(UserError, match="cannot train on batches of 1 windows of 8x8"):
        bench_step([config(batch=1, crop=8)], METHODS, FEW, silent())


@pytest.mark.slow
def test_settings_of_the_process_are_put_back(silent):
    bench_step([config("train.precision=fp64", "train.deterministic=true", crop=32)], METHODS, FEW, silent())
    assert torch.get_default_dtype() == torch.float32
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
def test_passes_and_what_is_kept(silent):
    names = ("finetune", "mib", "faircl-paper", "faircl")
    rows = {row.method: row for row in bench_step([config()], [(n, n) for n in names], FEW, silent())}
    network = build_model(config())
    network.classifier.grow(FEW.old_classes)
    copied = sum(parameter.numel() for parameter in network.parameters())
    assert [rows[name].passes for name in names] == [1, 2, 1, 1]
    assert rows["finetune"].extra == 0
    assert rows["mib"].extra == copied
    # Prototypes (6, 8); share, predicted, ready, filled and head (6,); the three classes that move.
    prototypes = 6 * 8 + 5 * 6 + 3
    assert rows["faircl-paper"].extra == prototypes
    # 200 features of every class (6, 200, 8) and their number.
    assert rows["faircl"].extra == prototypes + 6 * 200 * 8 + 6


def test_peers_know_no_accumulation(silent):
    with pytest.raises(UserError, match=r"leave --peer or optim\.accumulate out"):
        bench_step([config("optim.accumulate=2")], METHODS, FEW, silent(), ["eager"])


def test_a_step_that_cannot_be_compiled_is_a_sentence():
    def fails():
        raise RuntimeError("no compiler\nfound")

    with pytest.raises(UserError, match="no compiler found; leave --peer compiled out"):
        updates.compile_update(fails)


def test_a_plain_step_that_torch_would_count_wrong_is_refused():
    config = resolve({"data": "scenes", "model": "small", "method": "faircl"}, ["train.accelerator=cpu"])
    labels = torch.zeros((1, 1, 1), dtype=torch.int64).expand(24, 1024, 1024)  # takes no memory
    with pytest.raises(UserError, match=r"would need 3\.8e\+09 upsampled logits at once"):
        make_plain_update(
            build_model(config, pretrained=False), 151, make_fabric(config.train), labels, labels, "eager"
        )
