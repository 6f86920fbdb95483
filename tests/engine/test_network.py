"""Building the network, the check of its shapes, training mode, BatchNorm across processes."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from faircl.config.schema import TrainConfig
from faircl.engine.network import (
    build_model,
    check_network,
    convert_sync_batch_norm,
    has_unsynchronised_batch_norm,
    set_training_mode,
    use_sync_batch_norm,
)
from faircl.errors import UserError
from faircl.registry import MODELS


@pytest.mark.parametrize(
    "settings",
    [
        ("train.batch=2", "train.crop=8"),
        ("train.batch=1", "train.crop=32"),
        ("train.batch=1", "train.crop=8", "model.norm=group"),
        ("train.batch=64", "train.crop=2048"),  # on the meta device: nothing is computed
    ],
)
def test_a_network_that_can_train_is_left_as_it_was(settings, tiny_config):
    config = tiny_config(*settings)
    model = build_model(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    check_network(config, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.classifier.classes == 0
    assert {value.device.type for value in model.state_dict().values()} == {"cpu"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_one_value_per_channel_is_too_few_for_batch_norm(tiny_config, tiny_train, tmp_path):
    small = ("train.batch=1", "train.crop=8")
    config = tiny_config(*small)
    words = r"Network 'small' cannot train on batches of 1 windows of 8x8: .*raise train\.batch or train\.crop\.$"
    with pytest.raises(UserError, match=words):
        check_network(config, build_model(config))
    with pytest.raises(UserError, match=words):
        tiny_train(tmp_path / "run", *small)
    assert not (tmp_path / "run").exists()


def test_the_network_is_tried_on_the_smallest_share_of_a_batch(tiny_config):
    config = tiny_config("train.batch=2", "train.crop=8")
    check_network(config, build_model(config), 2)
    with pytest.raises(UserError, match=r"batches of 1 windows .*raise train\.batch .*or start fewer processes\.$"):
        check_network(config, build_model(config), 1)


# ---- training mode


@pytest.mark.parametrize(
    ("settings", "step", "training"),
    [
        ((), 0, {"backbone": (True, True), "decoder": (True, True)}),
        (("train.frozen_norm=always",), 0, {"backbone": (False, True), "decoder": (False, True)}),
        (("train.frozen_norm=later",), 0, {"backbone": (True, True), "decoder": (True, True)}),
        (("train.frozen_norm=later",), 1, {"backbone": (False, True), "decoder": (False, True)}),
        (("optim.parts.backbone=0",), 0, {"backbone": (False, False), "decoder": (True, True)}),
    ],
)
def test_what_is_frozen_does_not_train(settings, step, training, tiny_config):
    config = tiny_config(*settings)
    model = build_model(config)
    for part in (model.backbone, model.decoder):
        part.add_module("drop", nn.Dropout())
    set_training_mode(model, config, step)
    for name, (norm, dropout) in training.items():
        part = getattr(model, name)
        assert {m.training for m in part.modules() if isinstance(m, nn.BatchNorm2d)} == {norm}
        assert part.drop.training == dropout
    assert model.dropout.training


# ---- BatchNorm over processes


@pytest.mark.parametrize(
    ("setting", "device", "processes", "expected"),
    [
        ("auto", "cuda", 2, True),
        ("auto", "cuda", 1, False),
        ("auto", "cpu", 2, False),
        ("always", "cuda", 1, True),
        ("always", "cuda", 2, True),
        ("never", "cuda", 2, False),
        ("never", "cpu", 1, False),
    ],
)
def test_when_batch_norm_is_synchronised(setting, device, processes, expected, monkeypatch):
    monkeypatch.setattr("faircl.engine.network.world_size", lambda: processes)
    assert use_sync_batch_norm(TrainConfig(sync_norm=setting), torch.device(device)) == expected


def test_a_cpu_has_no_synchronised_batch_norm():
    with pytest.raises(UserError, match=r"train\.sync_norm is always, but SyncBatchNorm needs GPUs"):
        use_sync_batch_norm(TrainConfig(sync_norm="always"), torch.device("cpu"))


def test_synchronising_keeps_names_values_and_modes(tiny_config):
    config = tiny_config("train.frozen_norm=always")
    model = build_model(config)
    model.classifier.grow(3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    image = torch.rand(2, 3, 32, 32)
    expected = model.eval()(image).logits
    converted = convert_sync_batch_norm(model)
    assert converted is model
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert sum(isinstance(m, nn.SyncBatchNorm) for m in model.modules()) == 10
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert torch.equal(model.eval()(image).logits, expected)
    set_training_mode(model, config, 0)
    assert not any(m.training for m in model.modules() if isinstance(m, nn.SyncBatchNorm))
    build_model(config).load_state_dict({k: v for k, v in after.items() if not k.startswith("classifier")})


def test_which_networks_depend_on_the_number_of_processes(tiny_config, monkeypatch):
    def local(*settings, synchronise=False):
        config = tiny_config(*settings)
        model = set_training_mode(build_model(config), config, 0)
        return has_unsynchronised_batch_norm(convert_sync_batch_norm(model) if synchronise else model)

    assert not local()
    monkeypatch.setattr("faircl.engine.network.world_size", lambda: 2)
    assert local()
    assert not local(synchronise=True)
    assert not local("train.frozen_norm=always")
    assert local("train.frozen_norm=later")
    assert not local("model.norm=group")


# ---- pretrained weights


def test_pretrained_weights_are_asked_for_at_the_first_step_alone(tiny_train, silent, tmp_path, monkeypatch):
    import faircl.engine.reevaluate as again
    import faircl.engine.trainer as trainer

    asked = []

    def watched(config, pretrained=True):
        asked.append(pretrained)
        return build_model(config, pretrained)

    for module in (trainer, again):
        monkeypatch.setattr(module, "build_model", watched)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", "train.epochs=0.3", reporter=silent("step 0 train"))
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", "train.epochs=0.3", resume=True, reporter=silent("step 1 train"))
    folder = tiny_train(tmp_path / "run", "train.epochs=0.3", resume=True)
    again.evaluate_again(folder, silent(), step=0)
    assert asked == [True, True, False, False]


def test_synchronising_keeps_the_activations_inside_timms_norms():
    config = MODELS.parse_config({"name": "timm", "backbone": "mobilenetv3_small_050", "weights": "none"})
    model = MODELS.get("timm")(config).eval()
    model.classifier.grow(2)
    image = torch.rand(1, 3, 64, 64)
    before = model(image).logits
    converted = convert_sync_batch_norm(model).eval()
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in converted.modules())
    assert torch.equal(converted(image).logits, before)


def test_a_factor_of_zero_freezes_a_part_at_later_steps_alone(tiny_config, tiny_train, tmp_path):
    settings = ("optim.later_parts.backbone=0",)
    config = tiny_config(*settings)
    for step in (0, 1):
        model = set_training_mode(build_model(config), config, step)
        assert [part.training for part in (model.backbone, model.decoder)] == [step == 0, True]
    run = tiny_train(tmp_path / "run", *settings)
    before, after = (load_file(run.step_path(step) / "model.safetensors") for step in (0, 1))
    frozen = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert {name for name in before if name.startswith("backbone.")} <= frozen
    assert not any(name.startswith("decoder.") and name.endswith("weight") for name in frozen)
    start = build_model(config).state_dict()
    assert not torch.equal(start["backbone.stem.0.weight"], before["backbone.stem.0.weight"])
