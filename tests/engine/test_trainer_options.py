"""Options of training have exactly their documented effect."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from faircl.engine.network import build_model
from faircl.engine.plan import make_plan
from faircl.errors import UserError
from faircl.methods.faircl import FairCL
from faircl.methods.finetune import FineTune

PLAIN = ("method.name=finetune", "train.epochs=1", "train.later_epochs=0.7")
OFFLINE = ("scenario.task=offline", *PLAIN)


def weights(folder, step: int = 0) -> dict[str, torch.Tensor]:
    return load_file(folder.step_path(step) / "model.safetensors")


def same(a, b, prefix="") -> bool:
    names = [name for name in a if name.startswith(prefix)]
    assert names
    return all(torch.equal(a[name], b[name]) for name in names)


@pytest.mark.parametrize(
    "settings",
    [
        ("optim.name=adamw", "optim.lr=0.001"),
        ("optim.schedule=cosine", "optim.warmup=2"),
        ("optim.schedule=constant",),
    ],
)
def test_optimisers_and_schedules_train(settings, tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *OFFLINE, *settings, "train.epochs=4")
    losses = [record["loss"] for record in folder.records("train")]
    assert len(losses) == 12
    assert sum(losses[-3:]) < sum(losses[:3])


def test_recorded_rates_follow_the_schedule(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *OFFLINE, "optim.schedule=poly", "optim.power=1", "optim.lr=0.03")
    assert [record["lr"] for record in folder.records("train")] == pytest.approx([0.03, 0.02, 0.01])


def test_accumulating_two_batches_equals_one_twice_as_large(tiny_train, tmp_path):
    # GroupNorm is independent of the batch, and without padding all batches have the same number of valid pixels.
    even = (*OFFLINE, "model.norm=group", "train.scale=[1, 1]", "train.jitter=0", "optim.lr=0.01")
    whole = tiny_train(tmp_path / "a", *even, "train.batch=8")
    halves = tiny_train(tmp_path / "b", *even, "train.batch=4", "optim.accumulate=2")
    assert len(whole.records("train")) == len(halves.records("train")) == 3
    initial = build_model(whole.config()).state_dict()
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(halves)[name], value, rtol=1e-3, atol=1e-5)
        if name in initial and value.ndim == 4:
            assert not torch.equal(initial[name], value)


def test_clipping_bounds_every_update(tiny_train, tmp_path):
    still = ("optim.momentum=0", "optim.weight_decay=0", "optim.schedule=constant", "optim.lr=1")
    folder = tiny_train(tmp_path / "run", *OFFLINE, *still, "optim.clip=1e-3")
    config, trained = folder.config(), weights(folder)
    start = build_model(config).state_dict()
    moved = math.sqrt(
        sum(
            float((trained[k] - v).square().sum())
            for k, v in start.items()
            if "running" not in k and v.is_floating_point()
        )
    )
    assert 1e-4 < moved <= 3 * 1e-3 * 1.01  # three updates of norm lr · clip


def test_factor_zero_freezes_a_part_bitwise(tiny_train, tmp_path):
    frozen = ("optim.parts.backbone=0", "optim.parts.old_classifier=0", "method.init=random")
    folder = tiny_train(tmp_path / "run", *PLAIN, *frozen)
    start = build_model(folder.config()).state_dict()  # includes the running statistics
    first, second = weights(folder, 0), weights(folder, 1)
    backbone = {name: value for name, value in start.items() if name.startswith("backbone.")}
    assert same(backbone, first)
    assert same(backbone, second)
    assert same(first, second, "classifier.heads.0.")
    assert not same({k: v for k, v in start.items() if k.startswith("decoder.")}, first)
    assert not same({k: v for k, v in first.items() if k.startswith("decoder.")}, second)


@pytest.mark.parametrize(
    ("when", "kept"), [("never", (False, False)), ("later", (False, True)), ("always", (True, True))]
)
def test_frozen_norm_keeps_running_statistics_bitwise(when, kept, tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *PLAIN, f"train.frozen_norm={when}")
    stages = [build_model(folder.config()).state_dict(), weights(folder, 0), weights(folder, 1)]
    stats = [{k: v for k, v in stage.items() if "running" in k or "num_batches" in k} for stage in stages]
    assert (same(stats[0], stats[1]), same(stats[1], stats[2])) == kept
    assert not same({k: v for k, v in stages[1].items() if k.startswith("backbone.stem.0")}, stages[2])  # still trained


def test_bf16_trains_on_a_cpu(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", "train.precision=bf16", "train.epochs=1")
    assert all(value.dtype != torch.bfloat16 for value in weights(folder, 1).values())
    assert all(math.isfinite(record["loss"]) for record in folder.records("train"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can")
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.precision=fp16", "fp16 needs a GPU; on a CPU use bf16"),
        ("train.accelerator=cuda", "torch sees no GPU; set it to cpu or auto"),
    ],
)
def test_what_a_cpu_cannot_do_is_said_before_anything_is_written(setting, words, tiny_train, tmp_path):
    with pytest.raises(UserError, match=words):
        tiny_train(tmp_path / "run", setting)
    assert not (tmp_path / "run").exists()


def test_threads_and_determinism_are_put_back(tiny_train, tmp_path):
    tiny_train(tmp_path / "run", *OFFLINE, "train.threads=2", "train.deterministic=true")
    assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()


def test_fractional_epochs_round_up(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *OFFLINE, "train.epochs=0.01")
    assert [record["iteration"] for record in folder.records("train")] == [1]


def test_a_batch_may_be_as_large_as_the_step_and_not_larger(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *OFFLINE, "train.batch=24", "train.epochs=1")
    assert len(folder.records("train")) == 1
    with pytest.raises(UserError, match=r"train\.batch is 25, but the data has 24 training images"):
        tiny_train(tmp_path / "larger", *OFFLINE, "train.batch=25")
    assert not (tmp_path / "larger").exists()


# ---- pixel counts of a step


@pytest.mark.parametrize("background", ["first", "none"])
def test_pixels_of_a_step_are_all_but_void(background, tiny_config, street, silent):
    for file in sorted((street / "masks/train").iterdir())[::3]:
        mask = np.array(Image.open(file))
        mask[:5] = 255
        Image.fromarray(mask).save(file)
    config = tiny_config("scenario.task=7-1", "train.batch=2", f"data.background={background}", root=street)
    plan = make_plan(config, config.data.open(), silent())
    for step in (0, 1):
        masks = [np.array(Image.open(street / f"masks/train/{id}.png")) for id in plan.scenario.steps[step].images]
        assert plan.pixels(step) == sum((mask != 255).sum() for mask in masks)
        assert any((mask == 255).any() for mask in masks)
        labelled = int(plan.label_counts(step).sum())
        assert (labelled == plan.pixels(step)) == (background == "first")


# ---- a loss that is not finite


def test_a_diverging_run_stops_and_names_every_term(tiny_train, tmp_path):
    with pytest.raises(UserError) as caught:
        tiny_train(tmp_path / "run", "optim.lr=1e30", "method.lambda_cluster=0.02")
    text = str(caught.value)
    assert "not finite at step 0, iteration 2" in text
    for term in ("seg = ", "cluster = "):
        assert term in text
    assert "lower optim.lr" in text


def test_a_bad_later_step_keeps_the_first(tiny_train, tiny_run, tmp_path, monkeypatch):
    losses = FairCL.losses

    def broken(self, batch, out, old, targets):
        terms = losses(self, batch, out, old, targets)
        return {**terms, "replay": terms["replay"] * math.inf} if self.old_classes else terms

    with monkeypatch.context() as patch:
        patch.setattr(FairCL, "losses", broken)
        with pytest.raises(UserError, match=r"step 1, iteration 1: seg = \d.*, replay = (inf|nan)"):
            tiny_train(tmp_path / "run")
    assert (tmp_path / "run/steps/00").is_dir()
    assert not (tmp_path / "run/steps/01").exists()
    resumed = tiny_train(tmp_path / "run", resume=True)
    assert same(weights(resumed, 1), weights(tiny_run, 1))


@pytest.mark.parametrize("bad", [5, 6])
def test_a_bad_batch_is_found_wherever_it_stands_in_an_update(bad, tiny_train, tmp_path, monkeypatch):
    losses, calls = FineTune.losses, []

    def broken(self, batch, out, old, targets):
        calls.append(1)
        terms = losses(self, batch, out, old, targets)
        return {"seg": terms["seg"] * math.nan} if len(calls) == bad else terms

    monkeypatch.setattr(FineTune, "losses", broken)
    with pytest.raises(UserError, match="step 0, iteration 3: seg = nan"):
        tiny_train(tmp_path / "run", *OFFLINE, "train.batch=4", "optim.accumulate=2")
    assert not any((tmp_path / "run/steps").iterdir())


def test_a_network_broken_by_its_last_update_is_not_saved(tiny_train, tmp_path, monkeypatch):
    def broken(self, context):
        if context.step == 1:
            with torch.no_grad():
                context.model.classifier.heads[1].bias[2] = math.nan

    with monkeypatch.context() as patch:
        patch.setattr(FineTune, "end_step", broken)
        with pytest.raises(UserError, match=r"not finite after step 1: classifier\.heads\.1\.bias; lower optim\.lr"):
            tiny_train(tmp_path / "run", *PLAIN)
    assert [step.name for step in (tmp_path / "run/steps").iterdir()] == ["00"]
    assert tiny_train(tmp_path / "run", *PLAIN, resume=True).finished_steps() == 2


def test_recorded_terms_are_means_over_the_batches_of_an_update(tiny_train, tmp_path, monkeypatch):
    losses, seen = FineTune.losses, []

    def watched(self, batch, out, old, targets):
        terms = losses(self, batch, out, old, targets)
        seen.append(terms["seg"].item())
        return terms

    monkeypatch.setattr(FineTune, "losses", watched)
    folder = tiny_train(tmp_path / "run", *OFFLINE, "train.batch=4", "optim.accumulate=2")
    recorded = [record["terms"]["seg"] for record in folder.records("train")]
    assert len(seen) == 2 * len(recorded) == 6
    assert recorded == pytest.approx([(a + b) / 2 for a, b in zip(seen[::2], seen[1::2], strict=True)])
