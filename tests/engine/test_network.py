"""The network is tried on shapes alone before a run touches the disk."""

import pytest
import torch

from faircl.engine.network import build_model, check_network
from faircl.errors import UserError


@pytest.mark.parametrize(
    "settings",
    [
        ("train.batch=2", "train.crop=8"),
        ("train.batch=1", "train.crop=32"),
        ("train.batch=1", "train.crop=8", "model.norm=group"),
        ("train.batch=64", "train.crop=2048"),  # no pixel is computed
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
