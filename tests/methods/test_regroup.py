"""FairCL's state after classes were merged or dropped, against numbers by hand."""

import pytest
import torch

from faircl.config.schema import BalanceConfig
from faircl.methods.balance import Balance
from faircl.methods.faircl.class_distribution import ClassDistribution
from faircl.methods.faircl.feature_memory import FeatureMemory
from faircl.methods.faircl.regroup import regroup_counts, regroup_features, regroup_prototypes, regroup_shares
from faircl.prototypes import PrototypeBank

GROUPS = [[0], [3, 1], [4]]  # class 2 is dropped


def bank(ready=(True, True, True, True, True)):
    made = PrototypeBank(2, 6, 1, 0.9)
    made.begin_step(5, background=True)
    made.prototypes = torch.tensor([[1.0, 1.0], [2.0, 0.0], [9.0, 9.0], [6.0, 4.0], [0.3, 0.7]])
    made.ready = torch.tensor(ready)
    made.finish_step()
    return made


def test_a_merged_prototype_is_the_mean_by_share():
    made, share = bank(), torch.tensor([0.5, 0.3, 0.1, 0.1, 0.0])
    regroup_prototypes(made, GROUPS, share)
    assert made.prototypes[1].tolist() == pytest.approx([0.75 * 2 + 0.25 * 6, 0.25 * 4])
    assert torch.equal(made.prototypes[[0, 2]], torch.tensor([[1.0, 1.0], [0.3, 0.7]]))  # to the bit
    assert made.ready.tolist() == [True, True, True]
    assert made.moving.tolist() == [0, 1, 2]
    assert made.queue.shape == (3, 0, 2)
    made.begin_step(4, background=True)
    assert made.frozen.tolist() == [False, True, True, False]


def test_members_without_a_prototype_do_not_count():
    made = bank(ready=(True, False, True, True, False))
    regroup_prototypes(made, GROUPS, torch.tensor([0.5, 0.3, 0.1, 0.1, 0.2]))
    assert made.prototypes[1].tolist() == [6.0, 4.0]
    assert made.ready.tolist() == [True, True, False]
    assert made.prototypes.isfinite().all()


def test_members_without_pixels_count_alike():
    made = bank()
    regroup_prototypes(made, GROUPS, torch.tensor([0.5, 0.0, 0.1, 0.0, 0.2]))
    assert made.prototypes[1].tolist() == pytest.approx([4.0, 2.0])


def memory(filled, size=4):
    made = FeatureMemory(size, 1)
    made.filled = torch.tensor(filled)
    made.features = (10 * torch.arange(len(filled))[:, None] + torch.arange(size)).half()[..., None]
    return made


@pytest.mark.parametrize(
    ("filled", "expected"),
    [
        ([4, 4, 4, 4, 2], [30, 10, 31, 11]),  # half and half, up to the size kept
        ([4, 4, 4, 1, 2], [30, 10, 11, 12]),  # one of them has a single feature: the other gives the rest
        ([4, 1, 4, 2, 2], [30, 10, 31]),
        ([4, 0, 4, 3, 2], [30, 31, 32]),
        ([4, 0, 4, 0, 2], []),
    ],
)
def test_members_give_their_features_in_turn(filled, expected):
    made = memory(filled)
    regroup_features(made, GROUPS)
    assert made.filled.tolist() == [4, len(expected), 2]
    assert made.features[1, : len(expected), 0].tolist() == expected
    assert made.features[0, :, 0].tolist() == [0, 1, 2, 3]
    assert made.features[2, :2, 0].tolist() == [40, 41]
    assert made.features.shape == (3, 4, 1)


def test_dropping_alone_keeps_every_byte_of_the_others():
    made = memory([4, 2, 4, 1, 0])
    before = made.features.clone()
    regroup_features(made, [[0], [1], [3], [4]])
    assert torch.equal(made.features, before[[0, 1, 3, 4]])


def test_a_memory_without_features_stays_without():
    made = FeatureMemory(4, 1)
    regroup_features(made, GROUPS)
    assert made.features.shape == (0, 4, 1)


def test_shares_add_up():
    made = ClassDistribution()
    made.share = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.03125])
    made.predicted = torch.full((5,), 0.2)
    regroup_shares(made, GROUPS)
    assert made.share.tolist() == [0.5, 0.3125, 0.03125]
    assert made.predicted.tolist() == pytest.approx([0.2, 0.4, 0.2])


def test_a_balanced_loss_has_the_new_classes_too():
    made = Balance(BalanceConfig(loss="weighted"))
    made.share = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.03125], dtype=torch.float64)
    made.images = torch.tensor([9, 4, 5, 7, 1])
    regroup_counts(made, GROUPS)
    assert made.share.tolist() == [0.5, 0.3125, 0.03125]
    assert made.images.tolist() == [9, 7, 1]
