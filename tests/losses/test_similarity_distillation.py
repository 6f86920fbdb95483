"""Class similarity, and the distillation weighted by it, against plain loops."""

import math

import pytest
import torch
import torch.distributed as dist
from processes import start

from faircl.distributed import global_sum, rank_slice, world_size
from faircl.labels import IGNORE, UNLABELLED
from faircl.losses.distillation import distillation
from faircl.losses.similarity_distillation import class_similarity, similarity_distillation


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def similarity_loop(means, prototypes, ready, delta):
    rows = []
    for mu in means.tolist():
        exps = []
        for p, known in zip(prototypes.tolist(), ready.tolist(), strict=True):
            dot = sum(a * b for a, b in zip(mu, p, strict=True))
            length = math.hypot(*mu) * math.hypot(*p)
            exps.append(math.exp(dot / length) if known else 0.0)
        total, active = sum(exps), sum(ready.tolist())
        rows.append([e / total if total and e / total >= delta / active else 0.0 for e in exps])
    return rows


@pytest.mark.parametrize(("new", "known"), [(1, 1), (3, 1), (1, 4), (2, 5)])
@pytest.mark.parametrize("delta", [0.0, 0.9, 1.0, 1.5])
def test_similarity_equals_a_plain_loop(new, known, delta):
    means, prototypes, ready = draw(new, 6), draw(known, 6, seed=1), torch.ones(known, dtype=torch.bool)
    if known > 2:
        ready[1] = False
    found = class_similarity(means, prototypes, ready, delta)
    assert found.shape == (new, known)
    for row, wanted in zip(found.tolist(), similarity_loop(means, prototypes, ready, delta), strict=True):
        assert row == pytest.approx(wanted, abs=1e-9)


def test_similarity_by_hand():
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-3.0, 0.0], [7.0, 7.0]])
    ready = torch.tensor([True, True, True, False])
    found = class_similarity(torch.tensor([[2.0, 0.0]]), prototypes, ready, 1.0)
    assert found[0].tolist() == pytest.approx([math.e / (math.e + 1 + 1 / math.e), 0, 0, 0], abs=1e-6)
    everything = class_similarity(torch.tensor([[2.0, 0.0]]), prototypes, ready, 0.0)
    assert everything.sum().item() == pytest.approx(1)
    assert everything[0, 0] > everything[0, 1] > everything[0, 2] > everything[0, 3] == 0


@pytest.mark.parametrize("known", [1, 3, 7, 150])
def test_classes_of_equal_similarity_are_all_kept(known):
    row = draw(1, 5).float()
    found = class_similarity(row, row.expand(known, 5), torch.ones(known, dtype=torch.bool), 1.0)
    assert found[0].tolist() == pytest.approx([1 / known] * known)


def test_without_prototypes_nothing_is_similar():
    found = class_similarity(draw(2, 3), torch.zeros(4, 3).double(), torch.zeros(4, dtype=torch.bool), 1.0)
    assert found.tolist() == [[0] * 4] * 2
    # The mean of an absent class is zero: all similarities are equal, without NaN.
    found = class_similarity(torch.zeros(1, 3), draw(4, 3).float(), torch.ones(4, dtype=torch.bool), 1.0)
    assert found[0].tolist() == pytest.approx([0.25] * 4)


def loop(new, old, labels, similarity, t):
    known = old.shape[1]
    total = count = 0
    for b in range(new.shape[0]):
        for y in range(new.shape[2]):
            for x in range(new.shape[3]):
                c = labels[b, y, x].item()
                if known <= c < known + len(similarity):
                    count += 1
                    q = [math.exp(v / t) for v in old[b, :, y, x].tolist()]
                    p = [math.exp(v / t) for v in new[b, :known, y, x].tolist()]
                    r = similarity[c - known].tolist()
                    for k in range(known):
                        total -= r[k] * q[k] / sum(q) * math.log(p[k] / sum(p))
    return t * t * total / max(count, 1)


@pytest.mark.parametrize(("known", "new_classes"), [(1, 2), (3, 1), (2, 3)])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("kind", ["some", "none", "all"])
def test_equals_a_plain_loop(known, new_classes, temperature, kind):
    new, old = draw(2, known + new_classes, 3, 2), draw(2, known, 3, 2, seed=1)
    labels = torch.randint(known + new_classes, (2, 3, 2), generator=torch.Generator().manual_seed(2))
    labels[0, 0, 0], labels[0, 0, 1], labels[1, 2, 1] = IGNORE, UNLABELLED, known
    labels = {"some": labels, "none": labels.clamp_max(known - 1), "all": labels.clamp(known, known)}[kind]
    similarity = draw(new_classes, known, seed=3).abs()
    found = similarity_distillation(new, old, labels, similarity, temperature).item()
    assert found == pytest.approx(loop(new, old, labels, similarity, temperature), abs=1e-9)
    assert (found == 0) == (kind == "none" or known == 1)  # one old class has probability 1 in both networks


def test_gradients():
    new, old = draw(1, 4, 2, 2).requires_grad_(), draw(1, 2, 2, 2, seed=1)
    labels = torch.tensor([[[2, IGNORE], [0, 3]]])
    similarity = torch.tensor([[0.7, 0.0], [0.4, 0.6]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: similarity_distillation(z, old, labels, similarity), new)
    similarity_distillation(new, old, labels, similarity).backward()
    assert not new.grad[0, :, 0, 1].any()  # void
    assert not new.grad[0, :, 1, 0].any()  # old class
    assert not new.grad[:, 2:].any()  # new classes' logits
    assert new.grad[0, :2, 0, 0].all()


def test_equal_similarities_are_plain_distillation():
    """Published as a mean over classes, plain distillation is CSW-KD with r = 1/K and T = 1."""
    new, old = draw(2, 5, 3, 3), draw(2, 3, 3, 3, seed=1)
    labels = torch.full((2, 3, 3), 3)
    even = torch.full((2, 3), 1 / 3, dtype=torch.float64)
    plain = distillation(new, old, torch.ones(2, 3, 3, dtype=torch.bool))
    torch.testing.assert_close(similarity_distillation(new, old, labels, even, 1.0), plain)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="expected one similarity per old class, found 2 for 3 channels"):
        similarity_distillation(draw(1, 4, 2, 2), draw(1, 3, 2, 2), torch.zeros(1, 2, 2).long(), draw(1, 2))


def shared_work():
    new, old = draw(5, 4, 3, 3), draw(5, 2, 3, 3, seed=1)
    labels = torch.randint(4, (5, 3, 3), generator=torch.Generator().manual_seed(2))
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    loss = similarity_distillation(
        scale * rank_slice(new), rank_slice(old), rank_slice(labels), draw(2, 2, seed=4).abs()
    )
    loss.backward()
    return [(global_sum(value) / world_size()).item() for value in (loss, scale.grad)]


@pytest.mark.slow
def test_several_processes_are_as_one():
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    alone = shared_work()
    for found in start(2, shared_work):
        assert found == pytest.approx(alone, abs=1e-12)
