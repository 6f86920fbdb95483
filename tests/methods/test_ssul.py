"""SSUL: what is unknown, which pseudo labels are taken, what moves, and how a network with an unknown head is kept."""

import dataclasses
import json
import math

import pytest
import torch
from tiny_steps import Run, World

from faircl.config.run import parse_config
from faircl.engine.network import build_model, set_training_mode
from faircl.engine.optim import make_optimizer
from faircl.engine.reevaluate import evaluate_again
from faircl.errors import UserError
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch
from faircl.methods.ssul import SSUL, SSULM, SSULConfig, sure_classes
from faircl.models.deeplabv3 import DeepLabV3, DeepLabV3Config
from faircl.models.segmenter import SegOutput
from faircl.models.small import Small, SmallConfig
from faircl.runs.checkpoint import load_step

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def first_step(background=True, **options):
    r = Run(World(background), name="ssul", norm="batch", **options).begin(0)
    r.iterate(5)
    return r.end()


def settings(**changes):
    return parse_config({"data": "scenes", "model": "small", "method": "ssul", **changes})


# ---- the classifier


@both_worlds
def test_unknown_is_background_in_prediction_and_apart_in_training(background):
    classifier = Run(World(background), name="ssul").begin(0).model.classifier
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.normal_()
    classifier.requires_grad_(False)
    x = torch.randn(2, 8, 3, 3)
    plain, unknown = classifier(x), classifier.unknown_logit(x)
    assert torch.equal(unknown, classifier.unknown(x))
    classifier.eval()
    assert classifier.unknown_logit(x) is None
    found = classifier(x)
    assert torch.equal(found[:, 1:], plain[:, 1:])
    if not background:
        assert torch.equal(found, plain)
        return
    for z, u, merged in zip(plain[:, 0].flatten(), unknown.flatten(), found[:, 0].flatten(), strict=True):
        assert merged.item() == pytest.approx(math.log(math.exp(z) + math.exp(u)), abs=1e-5)


def test_output_has_unknown_in_training_mode_alone():
    r = Run(name="ssul").begin(0)
    image = r.batch().image
    assert r.model(image).unknown.shape == (2, 1, *r.model(image).logits.shape[-2:])
    assert r.model.eval()(image).unknown is None
    assert Run(name="finetune").begin(0).model(image).unknown is None


def test_other_methods_have_no_such_head():
    state = Run(name="finetune").begin(0).model.state_dict()
    assert not any("unknown" in name for name in state)
    assert "classifier.unknown.weight" in Run(name="ssul").begin(0).model.state_dict()


def test_plain_networks_have_no_place_for_it():
    model = DeepLabV3(DeepLabV3Config(backbone="resnet50", stride=8))
    model.classifier.grow(2)
    assert "classifier.4.bias" in model.export_state_dict()
    model.classifier.add_unknown(True)
    with pytest.raises(UserError, match="head for unknown pixels"):
        model.export_state_dict()


# ---- labels


def bare_method(background=True, **options):
    """A method at its first step, without pseudo labels."""
    r = Run(World(background), name="ssul", **options).begin(0)
    return r.method


def tiny_batch(labels, salient=None):
    labels = torch.tensor([labels])
    given = None if salient is None else torch.tensor([salient], dtype=torch.bool)
    return Batch(torch.zeros(1, 3, *labels.shape[1:]), labels, None, torch.zeros(1, dtype=torch.int64), given)


def output(logits, embedding=None, unknown=None):
    return SegOutput(logits, embedding if embedding is not None else logits, (), None, unknown)


@pytest.mark.parametrize(
    ("background", "salient", "wanted_targets", "wanted_unknown"),
    [
        (True, None, [[0, 1, 2, IGNORE, 0]], [[1, 0, 0, 0, 1]]),
        (True, [[1, 1, 0, 1, 0]], [[0, 1, 2, IGNORE, 0]], [[1, 0, 0, 0, 0]]),
        (False, None, [[IGNORE, 1, 2, IGNORE, IGNORE]], [[1, 0, 0, 0, 1]]),
        (False, [[1, 1, 0, 1, 0]], [[IGNORE, 1, 2, IGNORE, IGNORE]], [[1, 0, 0, 0, 0]]),
    ],
)
def test_which_pixels_are_unknown(background, salient, wanted_targets, wanted_unknown):
    hidden = BACKGROUND if background else UNLABELLED
    batch = tiny_batch([[hidden, 1, 2, IGNORE, hidden]], salient)
    method = bare_method(background)
    targets = method.targets(batch, output(torch.zeros(1, 3, 1, 5)), None)
    assert targets[0].tolist() == wanted_targets
    assert method.unknown(batch, targets)[0].int().tolist() == wanted_unknown


def test_sure_classes_by_hand():
    high, low = 3.0, 0.5  # σ = 0.95 and 0.62
    columns = [
        [0.0, high, low, -1.0],  # class 1, sure
        [high, 2.9, 0.0, 0.0],  # background, though class 1 is sure as well
        [0.0, 2.0, 2.5, high],  # unknown
        [0.0, 0.0, low, 0.0],  # class 2, not sure
        [-5.0, -5.0, 0.9, 0.0],  # class 2, σ = 0.711
    ]
    logits = torch.tensor(columns).t()[None, :, None]
    wanted = [1, IGNORE, IGNORE, IGNORE, 2]
    assert sure_classes(logits, torch.Size([1, 5]), 0.7, 1)[0, 0].tolist() == wanted
    assert sure_classes(logits, torch.Size([1, 5]), 0.72, 1)[0, 0].tolist() == [*wanted[:4], IGNORE]
    # Without a background class the first channel is an ordinary one.
    assert sure_classes(logits, torch.Size([1, 5]), 0.7, 0)[0, 0].tolist() == [1, 0, IGNORE, IGNORE, 2]
    # At twice the size, logits are upsampled before the choice.
    large = sure_classes(logits[..., :2], torch.Size([1, 4]), 0.7, 1)[0, 0].tolist()
    assert large == [1, 1, 1, IGNORE]  # the third: (0.75, 0.25) gives background 2.25, class 1 2.925


@both_worlds
def test_pseudo_labels_are_the_old_classifiers_on_the_embedding(background):
    r = first_step(background)
    classifier, old = r.model.classifier, r.world.channels[0]
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.normal_(std=3)
    teacher = (torch.cat([h.weight for h in classifier.heads]), torch.cat([h.bias for h in classifier.heads]))
    weight = torch.cat([teacher[0], classifier.unknown.weight]).detach().clone()
    bias = torch.cat([teacher[1], classifier.unknown.bias]).detach().clone()
    r.begin(1, lr=0.5).iterate(3)  # unknown itself moves on; labels are still the old one's
    batch, out, targets, _ = r.forward()
    logits = torch.nn.functional.conv2d(out.embedding, weight, bias)
    large = torch.nn.functional.interpolate(logits, targets.shape[-2:], mode="bilinear").sigmoid()
    given = 0
    for b, i, j in (batch.labels == r.world.unlabelled).nonzero().tolist():
        best = int(large[b, :, i, j].argmax())
        taken = int(background) <= best < old and large[b, best, i, j] >= 0.7
        given += taken
        assert targets[b, i, j] == (best if taken else (BACKGROUND if background else IGNORE))
    assert given > 50
    labelled = batch.labels != r.world.unlabelled
    assert torch.equal(targets[labelled], batch.labels[labelled])


def test_a_pixel_with_a_pseudo_label_is_not_unknown():
    method = bare_method()
    batch = tiny_batch([[0, 0, 3, IGNORE]])
    targets = torch.tensor([[[2, 0, 3, IGNORE]]])
    assert method.unknown(batch, targets).tolist() == [[[False, True, False, False]]]


# ---- the loss


def by_hand(logits, targets):
    """Mean over valid pixels of the sum over channels of the binary cross-entropy, in plain loops."""
    total = count = 0.0
    for b in range(len(targets)):
        for i in range(len(targets[b])):
            for j, y in enumerate(targets[b][i]):
                if y == IGNORE:
                    continue
                count += 1
                for c in range(len(logits[b])):
                    p = 1 / (1 + math.exp(-logits[b][c][i][j]))
                    total -= math.log(p if c == y else 1 - p)
    return total / count if count else 0.0


CASES = {
    "plain": ([[0, 1, 2], [2, IGNORE, 0]], None, [[3, 1, 2], [2, IGNORE, 3]]),
    "salient": ([[0, 1, 2], [2, IGNORE, 0]], [[1, 1, 0], [0, 1, 0]], [[3, 1, 2], [2, IGNORE, 0]]),
    "absent classes": ([[0, 0, 0], [0, 0, 1]], [[0, 0, 0], [1, 0, 0]], [[0, 0, 0], [3, 0, 1]]),
    "all ignored": ([[IGNORE] * 3] * 2, None, [[IGNORE] * 3] * 2),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_equals_plain_loops(case):
    labels, salient, wanted = CASES[case]
    batch, method = tiny_batch(labels, salient), bare_method()
    draw = torch.Generator().manual_seed(3)
    logits, unknown = (torch.randn(1, c, 2, 3, generator=draw, dtype=torch.float64) for c in (3, 1))
    targets = method.targets(batch, output(logits), None)

    def loss(logits, unknown):
        return method.losses(batch, output(logits, unknown=unknown), None, targets)["seg"]

    everything = torch.cat([logits, unknown], 1).tolist()
    assert loss(logits, unknown).item() == pytest.approx(by_hand(everything, [wanted]), abs=1e-6)
    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(), unknown.requires_grad_()))


def test_evaluation_mode_trains_unknown_as_background():
    method, batch = bare_method(), tiny_batch([[0, 1, 2]])
    logits = torch.randn(1, 3, 1, 3, dtype=torch.float64)
    found = method.losses(batch, output(logits), None, batch.labels)["seg"].item()
    assert found == pytest.approx(by_hand(logits.tolist(), batch.labels.tolist()), abs=1e-6)


# ---- steps


@both_worlds
def test_later_steps_move_the_new_head_and_unknown_alone(background):
    """As the engine trains it: weights, statistics and counters of all else stay bit for bit."""
    config = settings(optim={"weight_decay": 0.1})
    r = first_step(background)
    before = {k: v.clone() for k, v in r.model.state_dict().items()}
    r.begin(1)
    start = r.model.classifier.heads[1].weight.detach().clone()
    r.optimizer = make_optimizer(config.optim, r.model, 1)
    set_training_mode(r.model, config, 1)
    r.iterate(4)
    after = r.end().model.state_dict()
    assert any("running_mean" in name for name in before)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"classifier.unknown.weight", "classifier.unknown.bias"}
    assert [group["name"] for group in r.optimizer.param_groups] == ["new_classifier"]
    assert not torch.equal(start, r.model.classifier.heads[1].weight)


def test_new_classes_start_from_unknown():
    r = first_step()
    first_bias = r.model.classifier.heads[0].bias.detach().clone()
    r.begin(1)
    classifier = r.model.classifier
    for row in range(2):
        assert torch.equal(classifier.heads[1].weight[row], classifier.unknown.weight[0])
        assert torch.equal(classifier.heads[1].bias[row], classifier.unknown.bias[0])
    assert torch.equal(classifier.heads[0].bias, first_bias)  # the background's is not shared


@pytest.mark.parametrize("init", ["background", "random", "prototype"])
def test_without_transfer_init_counts(init):
    r = first_step(transfer=False, init=init)
    first, unknown = (
        part.weight.detach().clone() for part in (r.model.classifier.heads[0], r.model.classifier.unknown)
    )
    r.begin(1)
    head = r.model.classifier.heads[1].weight
    assert torch.equal(head[0], first[0]) == (init == "background")
    assert not torch.equal(head[0], unknown[0])
    assert not r.model.classifier.heads[0].weight.requires_grad


def test_domain_steps_train_all_heads_without_pseudo_labels():
    r = first_step()
    context = dataclasses.replace(r.world.context(1, r.model), classes=3, domain=True, unlabelled=UNLABELLED)
    r.method.begin_step(context)
    moving = {name.rpartition(".")[0] for name, p in r.model.named_parameters() if p.requires_grad}
    assert moving == {"classifier.heads.0", "classifier.unknown"}
    assert len(r.method.old_weight) == 0
    batch = r.batch()
    assert torch.equal(r.method.targets(batch, r.model(batch.image), None), batch.labels)


def test_the_sequential_setting_hides_nothing():
    r = first_step()
    r.method.begin_step(dataclasses.replace(r.world.context(1, r.model), unlabelled=UNLABELLED))
    assert len(r.method.old_weight) == 0
    assert r.method.unlabelled == BACKGROUND  # salient background is unknown all the same


def test_settings_of_later_steps_leave_the_first_one_alone():
    model = Small(SmallConfig(width=8, embedding=8))
    key = SSUL(SSULConfig(), model).step0_key()
    assert SSUL(SSULConfig(threshold=0.5, transfer=False, init="random"), model).step0_key() == key
    assert SSULM(SSULM.Config(), model).step0_key() == key


def test_the_variant_with_memory_says_so():
    assert SSULM.needs.memory is True
    assert SSUL.needs.memory is False
    assert SSULM.needs.auxiliary_map == SSUL.needs.auxiliary_map == "saliency"
    assert "memory.images" in SSULM.needs.words
    assert SSULM.losses is SSUL.losses


# ---- on disk


QUICK = (
    "scenario.task=6-4",
    "data.images=16",
    "train.epochs=1",
    "train.later_epochs=1",
    "optim.lr=0.01",
    "method=ssul",
)


def test_checkpoints_keep_the_unknown_head(tiny_train, silent, tmp_path):
    whole = tiny_train(tmp_path / "whole", *QUICK)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "parts", *QUICK, reporter=silent("step 1 train"))
    parts = tiny_train(tmp_path / "parts", *QUICK, resume=True)
    for file in ("model.safetensors", "method.safetensors", "model.json", "method.json"):
        assert (parts.step_path(1) / file).read_bytes() == (whole.step_path(1) / file).read_bytes()
    assert json.loads((whole.step_path(1) / "model.json").read_text())["unknown"] is True

    model = build_model(whole.config(), pretrained=False)
    load_step(whole.step_path(1), model, None)
    assert model.classifier.unknown_is_background
    assert model.classifier.sizes == [7, 4]
    saved = [record["miou"] for record in whole.records("eval")]
    assert [metrics.to_json()["miou"] for metrics in evaluate_again(whole, silent())] == saved


def test_networks_of_other_methods_are_written_as_before(tiny_run):
    assert "unknown" not in json.loads((tiny_run.step_path(1) / "model.json").read_text())


def test_with_a_memory(tiny_train, tmp_path):
    run = tiny_train(tmp_path / "run", *QUICK[:-1], "method=ssul-m", "memory.images=6", "balance.loss=weighted")
    assert run.finished_steps() == 2
    with pytest.raises(UserError, match=r"memory\.images"):
        tiny_train(tmp_path / "none", *QUICK[:-1], "method=ssul-m")


@pytest.mark.slow
def test_inside_another_method(tiny_train, tmp_path):
    run = tiny_train(tmp_path / "run", "method={name: ewf, method: ssul}", *QUICK[:-1])
    assert run.finished_steps() == 2
