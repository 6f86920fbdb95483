"""Any network on any loader: shapes of outputs and batches, against masks of its own argmax."""

import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from faircl.auditing.class_list import read_class_list
from faircl.auditing.mask_record import MaskSettings, count_arrays
from faircl.deploy.model_record import count_model
from faircl.errors import UserError
from faircl.progress import SilentReporter

CPU = torch.device("cpu")
NAMES = read_class_list(["a", "b", "c"])


class Net(nn.Module):
    """A convolution of stride 2 whose output is wrapped as a library would."""

    def __init__(self, wrap=lambda logits: logits, classes=3):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.wrap, self.drop = nn.Conv2d(3, classes, 3, 2, 1), wrap, nn.Dropout(0.9)

    def forward(self, images):
        return self.wrap(self.drop(self.layer(images)))


def data(count=5, size=(9, 11)):
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, 3, *size, generator=generator)
    masks = torch.randint(0, 3, (count, *size), generator=generator)
    masks[torch.rand(masks.shape, generator=generator) < 0.2] = 255
    return images, masks


def run(model, loader, classes=NAMES, ids=(), **settings):
    return count_model(model, loader, classes, MaskSettings(**settings), CPU, SilentReporter(), ids)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: logits,
        lambda logits: {"out": logits, "aux": None},
        lambda logits: types.SimpleNamespace(logits=logits, loss=None),
        lambda logits: (logits, None),
    ],
    ids=["tensor", "torchvision", "transformers", "tuple"],
)
def test_equals_counting_its_masks(wrap):
    images, masks = data()
    model = Net(wrap).train()
    found = run(model, DataLoader(TensorDataset(images, masks), batch_size=2)).record
    plain = Net().eval()
    with torch.no_grad():
        guesses = F.interpolate(plain(images), masks.shape[-2:], mode="bilinear", align_corners=False).argmax(1)
    expected = count_arrays(masks.numpy(), guesses.numpy(), NAMES, MaskSettings(), ()).record
    assert found.images == expected.images
    assert (found.confusion() == expected.confusion()).all()
    assert found.reliability.pixels.sum() > 0
    assert model.training
    assert model.drop.training


def test_calibration_by_hand():
    """A network that is sure by three quarters and always right has a confidence sum of 0.75 per pixel."""
    logits = torch.log(torch.tensor([0.75, 0.15, 0.10])).view(1, 3, 1, 1)
    masks = torch.zeros(1, 8, 8, dtype=torch.long)
    found = run(lambda images: logits.expand(len(images), 3, 8, 8), [(torch.zeros(1, 3, 8, 8), masks)]).record
    assert found.reliability.predicted.tolist() == [0]
    assert found.reliability.correct.tolist() == found.reliability.pixels.tolist()
    assert found.reliability.confidence[0] == pytest.approx(0.75 * found.reliability.pixels[0])


def test_batches_as_mappings_and_masks_with_a_channel():
    images, masks = data()
    pair = run(Net(), [(images, masks, "more")]).record
    for batch in ({"pixel_values": images, "labels": masks}, {"image": images, "mask": masks[:, None].byte()}):
        assert (run(Net(), [batch]).record.confusion() == pair.confusion()).all()
    negative = torch.where(masks == 255, -100, masks)
    assert (run(Net(), [(images, negative)]).record.confusion() == pair.confusion()).all()


def test_ids_of_classes_are_in_the_order_of_the_channels():
    images, masks = data()
    shifted = torch.where(masks == 255, 0, masks + 1)  # labels from 1 on, 0 is not labelled
    found = run(Net(), [(images, shifted)], read_class_list({1: "a", 2: "b", 3: "c"}), ignore=(0,)).record
    assert (found.confusion() == run(Net(), [(images, masks)]).record.confusion()).all()
    assert [c.id for c in found.classes] == [1, 2, 3]


def test_a_class_that_is_ignored_by_name_stays_a_channel():
    images, masks = data()
    found = run(Net(), [(images, masks)], ignore=("c", 255), ids=["x"]).record
    assert [c.scored for c in found.classes] == [True, True, False]
    assert found.confusion()[2].sum() == 0
    assert found.images[:2] == ("x", "000001")


@pytest.mark.parametrize(
    ("model", "batch", "words"),
    [
        (Net(classes=4), data(), r"shape \(5, 4, 5, 6\); expected logits \(B, 3, h, w\)"),
        (lambda images: "no", data(), "gave a str"),
        (Net(), (data()[0], data()[1][0]), r"masks of shape \(9, 11\)"),
        (Net(), (data()[0], data()[1].float()), "float32"),
        (Net(), data()[0], "gave a Tensor"),
        (Net(), {"x": 1}, "gave a dict"),
        (Net(), (data()[0], data()[1] + 7), "holds the value"),
        (Net(), (data()[0], torch.full_like(data()[1], 255)), "all are ignored"),
    ],
)
def test_mistakes(model, batch, words):
    with pytest.raises(UserError, match=words):
        run(model, [batch])


def test_no_batch_and_names_given_twice():
    with pytest.raises(UserError, match="no batch"):
        run(Net(), [])
    with pytest.raises(UserError, match="same name"):
        run(Net(), [data()], ids=["a", "a"])
    assert np.isclose(run(Net(), iter([data()])).record.confusion().sum(), int((data()[1] != 255).sum()))


class Elsewhere(Net):
    """A network on the device "meta", which gets its weights when it moves to the CPU."""

    def __init__(self):
        super().__init__()
        self.weights = {name: value.clone() for name, value in self.state_dict().items()}
        super().to("meta")

    def to(self, device):
        if device == CPU:
            self.to_empty(device=device).load_state_dict(self.weights)
            return self
        return super().to(device)


@pytest.mark.parametrize("fails", [False, True])
def test_device_and_mode_are_restored(fails):
    images, masks = data()
    model = Elsewhere().train()
    model.layer.eval()
    if fails:
        with pytest.raises(UserError, match="class ids"):
            run(model, [(images, masks[:, 0])])
    else:
        found, plain = (run(one, [(images, masks)]).record for one in (model, Net()))
        assert (found.confusion() == plain.confusion()).all()
    assert {one.device.type for one in model.parameters()} == {"meta"}
    assert [one.training for one in (model, model.layer, model.drop)] == [True, False, True]


class Stuck(Elsewhere):
    """A network half of which stays where it is, on the way there or on the way back."""

    def __init__(self, there):
        super().__init__()
        self.there = there

    def to(self, device):
        if (device == CPU) == self.there:
            self.layer.weight = nn.Parameter(torch.zeros_like(self.layer.weight, device=device))
            raise RuntimeError("CUDA out of memory")
        return super().to(device)


def test_a_move_that_fails_is_undone():
    model = Stuck(there=True).train()
    model.layer.eval()
    with pytest.raises(RuntimeError, match="out of memory"):
        run(model, [data()])
    assert {one.device.type for one in model.parameters()} == {"meta"}
    assert [one.training for one in (model, model.layer, model.drop)] == [True, False, True]


def test_modes_are_restored_where_the_way_back_fails():
    model = Stuck(there=False).train()
    with pytest.raises(RuntimeError, match="out of memory"):
        run(model, [data()])
    assert all(one.training for one in model.modules())


def test_a_network_on_several_devices_is_not_moved():
    model = Net()
    model.register_buffer("other", torch.zeros(1, device="meta"))
    run(model, [data()])
    assert model.other.device.type == "meta"
