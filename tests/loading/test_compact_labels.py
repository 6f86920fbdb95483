"""Labels in as few bytes as they fit."""

import numpy as np
import pytest
import torch

from faircl.labels import IGNORE, UNLABELLED
from faircl.loading.compact_labels import COMPACT_IGNORE, as_tensor, compact, compact_lookup, expand, to_common_dtype

EVERY = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def test_every_label_that_fits_a_byte_takes_one_and_comes_back():
    fitting = np.array([*range(254), UNLABELLED, IGNORE], np.uint16)
    small = compact(fitting)
    assert small.dtype == np.uint8
    assert small[-1] == COMPACT_IGNORE
    assert expand(as_tensor(small)).tolist() == fitting.tolist()


@pytest.mark.parametrize("large", [254, 255, 256, 65533])
def test_one_label_that_does_not_fit_makes_all_of_two_bytes(large):
    labels = np.array([0, large, IGNORE], np.uint16)
    sent = compact(labels)
    assert (sent.dtype, sent[-1]) == (np.uint16, COMPACT_IGNORE)
    assert expand(as_tensor(sent)).tolist() == [0, large, IGNORE]
    assert labels.tolist() == [0, large, IGNORE]


def test_all_labels_survive_as_two_bytes():
    tensor = as_tensor(compact(EVERY))
    assert tensor.dtype == torch.int16
    assert torch.equal(expand(tensor), torch.from_numpy(EVERY.astype(np.int64)))


def test_labels_of_both_types_become_wide_together():
    small, large = np.array([1, IGNORE, UNLABELLED], np.uint16), np.array([1, IGNORE, 400], np.uint16)
    both = to_common_dtype([as_tensor(compact(small)), as_tensor(compact(large))])
    assert [one.dtype for one in both] == [torch.int16] * 2
    assert [expand(one).tolist() for one in both] == [small.tolist(), large.tolist()]
    assert to_common_dtype([as_tensor(compact(small))] * 2)[1].dtype == torch.uint8


def test_widening_leaves_what_was_sent_alone():
    sent = as_tensor(compact(EVERY))
    before = sent.clone()
    expand(sent)
    assert torch.equal(sent, before)


@pytest.mark.parametrize("size", [256, 65536])
@pytest.mark.parametrize("highest", [253, 300])
def test_a_lookup_is_that_of_numpy(size, highest):
    rng = np.random.default_rng(0)
    table = rng.integers(0, highest + 1, size).astype(np.uint16)
    table[[3, -1]] = UNLABELLED, IGNORE
    table[7] = highest
    mask = rng.integers(0, size, (40, 30)).astype(np.uint8 if size == 256 else np.uint16)
    for part in (mask, mask[3:20, 5:9]):  # a part is not contiguous
        found = compact_lookup(table, part)
        assert found.dtype == (np.uint8 if highest < 254 else np.uint16)
        assert found.flags.writeable
        np.testing.assert_array_equal(expand(as_tensor(found)).numpy(), table[part])
