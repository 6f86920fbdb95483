import numpy as np
import torch

from faircl.seeding import generator, seeded, torch_seed

FROZEN_PERMUTATION: list[int] = [2, 5, 1, 4, 3, 0]
FROZEN_SEED = 6873208840821744382


def test_generators_depend_on_seed_and_counters_alone():
    np.random.seed(0)  # noqa: NPY002  the global state must not matter
    first = generator(3, "augment", 1, 20).random(4)
    np.random.seed(1)  # noqa: NPY002
    generator(3, "augment", 1, 19).random(100)
    np.testing.assert_array_equal(generator(3, "augment", 1, 20).random(4), first)


def test_every_counter_matters():
    keys = [(0, "a", 1, 2), (1, "a", 1, 2), (0, "b", 1, 2), (0, "a", 2, 2), (0, "a", 1, 3), (0, "a", 12), (0, "a", 1)]
    assert len({generator(*key).integers(1 << 62) for key in keys}) == len(keys)
    assert len({torch_seed(*key) for key in keys}) == len(keys)


def test_the_numbers_are_fixed_for_ever():
    # A change here changes every run ever made: it must be deliberate.
    assert generator(0, "shuffle", 0, 0).permutation(6).tolist() == FROZEN_PERMUTATION
    assert torch_seed(0, "model") == FROZEN_SEED


def test_torch_seeds_fit_in_63_bits():
    seeds = [torch_seed(0, i) for i in range(200)]
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert max(seeds) > 1 << 62
    for seed in seeds[:5]:
        torch.manual_seed(seed)


def test_seeded_block_repeats_and_leaves_the_global_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1, "model"):
        a = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(1, "model"):
        b = torch.rand(3)
    with seeded(2, "model"):
        c = torch.rand(3)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_global_state_is_restored_after_an_error():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    try:
        with seeded(1):
            torch.rand(1)
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_block_does_not_seed_gpus(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with seeded(1, "model"):
        pass
    assert seeds == []
