"""What processes do together equals what one does alone: sums, gradients, queues, assigned labels, evaluation."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import start

from faircl.data.label_index import index_labels
from faircl.distributed import (
    all_gather,
    all_gather_objects,
    global_mean,
    global_sum,
    on_rank_zero,
    rank,
    rank_slice,
    world_size,
)
from faircl.engine.evaluate import evaluate, predict_masks
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import FixedWindow
from faircl.loading.samplers import ShuffledOrder, StepBatchSampler, Stream
from faircl.losses import class_histogram, kl_from_uniform
from faircl.losses.cross_entropy import pixel_cross_entropy
from faircl.losses.imbalance import tilted_mean
from faircl.losses.iou import iou_loss, label_shares
from faircl.methods.assignment import Assignment, RejectingAssigner
from faircl.methods.faircl.soft_labels import SoftLabelScan
from faircl.methods.faircl.unknown_cluster import UnknownCluster
from faircl.models.small import Small, SmallConfig
from faircl.parallel import launched_world_size
from faircl.progress import SilentReporter
from faircl.prototypes import PrototypeBank, sample_keys
from faircl.readers.scenes import SceneData
from faircl.scenario import build_scenario

WORLD = 3
IMAGES = 7  # no multiple of the processes


def maps():
    gen = torch.Generator().manual_seed(0)
    logits = torch.randn((IMAGES, 3, 2, 2), generator=gen, dtype=torch.float64)
    return logits, torch.rand((IMAGES, 2, 2), generator=gen) > 0.3


def gradient():
    """Loss and gradient over all images, averaged over processes as DDP does."""
    logits, valid = (part[rank() :: world_size()] for part in maps())
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    scaled = scale * logits
    mean = global_mean((scaled.square().sum(1) * valid).sum(), valid.sum())
    loss = mean + kl_from_uniform(class_histogram(scaled, valid))
    target = scaled.detach().argmax(1).clamp_max(1).masked_fill(~valid, IGNORE)
    if rank() == 0:
        target[0, 0, 0] = 2  # a class that no other process has
    loss = loss + tilted_mean(pixel_cross_entropy(scaled, target), target, 2.0, scaled.shape[1])
    shares = label_shares(target[:, :, None, :, None], scaled.shape[1])
    loss = loss + iou_loss(scaled.softmax(1) * valid[:, None], shares[:, :-1].double())
    loss.backward()
    return [(global_sum(value) / world_size()).item() for value in (loss, scale.grad)]


def queues(as_map):
    """A bank that was given five batches of features; classes 1 and 4 never come, 2 is frozen."""
    bank = PrototypeBank(2, 9, 2, 0.9)
    bank.begin_step(3, True)
    bank.push(torch.ones(1, 2), torch.tensor([2]), torch.tensor([0]), 1)
    bank.begin_step(6, True)
    gen = torch.Generator().manual_seed(1)
    for batch in range(5):
        features = torch.randn((IMAGES, 2, 4, 5), generator=gen)
        labels = torch.tensor([0, 2, 3, 5, IGNORE])[torch.randint(5, (IMAGES, 4, 5), generator=gen)]
        features, labels, draws = (
            part[rank() :: world_size()] for part in (features, labels, IMAGES * batch + torch.arange(IMAGES))
        )
        rows = features if as_map else features.permute(0, 2, 3, 1).flatten(0, 2)
        bank.push(rows, labels.flatten(), sample_keys(draws, 4, 5), 4)
        bank.update(batch + 1)
    return [value.clone() for value in (bank.queue, bank.filled, bank.head, bank.prototypes)]


def unknown_cluster():
    """The unknown cluster's queue and prototype after pixels beyond a margin were marked and pushed twice."""
    known, own = PrototypeBank(2, 9, 1, 0.9), UnknownCluster(2, 9, 1, 0.9, margin=1.5)
    known.begin_step(3, True)
    known.ready.fill_(True)  # all prototypes at zero
    own.begin_step(3, True)
    gen = torch.Generator().manual_seed(4)
    for batch in range(2):
        features = torch.randn((IMAGES, 2, 4, 5), generator=gen)
        labels = torch.randint(3, (IMAGES, 4, 5), generator=gen)
        features, labels, draws = (
            part[rank() :: world_size()] for part in (features, labels, IMAGES * batch + torch.arange(IMAGES))
        )
        labels = own.mark(features, labels, labels == 0, known, hides_classes=True)
        own.push_marked(features, labels.flatten(), known, sample_keys(draws, 4, 5), 4)
        own.update(batch + 1)
    return [value.clone() for value in (own.queue, own.filled, own.prototypes)]


def assigned():
    """Masks with the most doubtful tenth rejected, and the pixels kept."""
    gen = torch.Generator().manual_seed(2)
    labels, doubt = torch.randint(3, (IMAGES, 6, 6), generator=gen), torch.rand((IMAGES, 6, 6), generator=gen)
    assigner, into = RejectingAssigner(3, 0.1), AssignedLabels()
    for k in rank_slice(range(IMAGES)):
        assigner.add([str(k)], Assignment(labels[k : k + 1], doubt[k : k + 1]), labels[k : k + 1] < 3)
    kept = assigner.store(into)
    return kept.tolist(), {id: into[id].tolist() for id in sorted(into)}


def soft_labels():
    """Soft labels of fixed windows that are scanned in turn, of few and of many classes, and sums over them."""
    found = []
    for classes, windows in ((4, IMAGES), (300, IMAGES), (4, 1)):  # with one window, some processes scan none
        gen = torch.Generator().manual_seed(3)
        logits = torch.randn((windows, classes, 3, 3), generator=gen)
        unlabelled = torch.rand((windows, 12, 12), generator=gen) > 0.5
        scan = SoftLabelScan(2, classes)
        for k in rank_slice(range(windows)):
            scan.add([7 * k], logits[k : k + 1], unlabelled[k : k + 1], ~unlabelled[k : k + 1])
        soft = scan.gather()
        given = soft.of([FixedWindow(7 * k, k % 2 == 1) for k in range(windows)], torch.device("cpu"))
        sums = [scan.background_share(), *scan.taken().tolist()]
        found.append((given.classes.tolist(), given.shares.tolist(), len(soft), sums))
    return found


def evaluated(images, examples):
    data = SceneData(8, images, 32)
    train, test = (index_labels(data, split) for split in ("train", "test"))
    classes = tuple(range(1, len(data.classes.names)))
    scenario = build_scenario(data.classes, (classes,), train, test, task="offline")
    torch.manual_seed(0)
    model = Small(SmallConfig(width=8, embedding=8, norm="group"))
    torch.nn.init.normal_(model.classifier.grow(scenario.channels(0)).weight)
    metrics, record = evaluate(model, data, "test", scenario, 0, batch=2, workers=0, reporter=SilentReporter())
    kept = predict_masks(model, data, "test", data.ids("test")[:examples], scenario)
    # Sums of confidences depend on how images are batched, by rounding.
    counted = [record.images, *(column.tolist() for column in (*record.confusions, *record.reliability[:-1]))]
    return metrics.to_json(), counted, [mask.tolist() for mask in kept]


def fail():
    raise UserError("the folder is not free")


def caught(work):
    with pytest.raises(Exception, match=r".") as found:
        on_rank_zero(work)
    return found.type, str(found.value)


def batches():
    return list(StepBatchSampler([Stream(ShuffledOrder(11, 3, ("shuffle", 1)), 5)], 6))


def everything():
    return {
        "gradient": gradient(),
        "map": queues(True),
        "flat": queues(False),
        "unknown": unknown_cluster(),
        "assigned": assigned(),
        "soft": soft_labels(),
        "few": evaluated(2, 4),
        "many": evaluated(IMAGES, 5),
        "none wanted": evaluated(IMAGES, 0),
        "first": on_rank_zero(lambda: ("of", rank())),
        "caught": caught(fail),
        "bug": caught(lambda: {}["nothing"]),
        "again": on_rank_zero(lambda: "still together"),
        "batches": batches(),
        "ranks": all_gather(torch.tensor([rank()])).tolist(),
        "objects": all_gather_objects({rank()}),
    }


@pytest.fixture(scope="module")
def alone():
    return everything()


@pytest.fixture(scope="module")
def together():
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    return start(WORLD, everything)


def test_a_loss_and_its_gradient(alone, together):
    for found in together:
        assert found["gradient"] == pytest.approx(alone["gradient"], abs=1e-12)


@pytest.mark.parametrize("form", ["map", "flat"])
def test_queues_and_prototypes_are_those_of_one_process(form, alone, together):
    assert alone["map"][1].tolist() == [9, 0, 0, 9, 0, 9]
    for found in (alone, *together):
        for value, expected in zip(found[form], alone["map"], strict=True):
            assert torch.equal(value, expected)


def test_the_unknown_cluster_is_that_of_one_process(alone, together):
    assert alone["unknown"][1].tolist() == [8]  # the quota, twice
    assert alone["unknown"][0][0, :8].norm(dim=1).min() > 0
    for found in together:
        for value, expected in zip(found["unknown"], alone["unknown"], strict=True):
            assert torch.equal(value, expected)


def test_every_process_has_all_assigned_labels(alone, together):
    kept, masks = alone["assigned"]
    assert sorted(masks) == [str(k) for k in range(IMAGES)]
    assert 0.85 < sum(kept) / (36 * IMAGES) < 0.95
    assert all(found["assigned"] == alone["assigned"] for found in together)


def test_every_process_has_all_soft_labels(alone, together):
    assert [count for *_, count, _ in alone["soft"]] == [IMAGES, IMAGES, 1]
    for found in together:
        for (*labels, sums), (*expected, shares) in zip(found["soft"], alone["soft"], strict=True):
            assert labels == expected
            assert sums == pytest.approx(shares, rel=1e-12)


@pytest.mark.parametrize("which", ["few", "many", "none wanted"])
def test_every_image_is_evaluated_once(which, alone, together):
    metrics, (ids, *_), examples = alone[which]
    images, wanted = {"few": (2, 2), "many": (IMAGES, 5), "none wanted": (IMAGES, 0)}[which]
    assert sum(c["pixels"] for c in metrics["classes"]) == images * 32 * 32
    assert len(set(ids)) == len(ids) == images
    assert np.shape(examples) == ((wanted, 32, 32) if wanted else (0,))
    assert all(found[which] == alone[which] for found in together)


def test_what_the_first_does_all_have(together):
    for found in together:
        assert found["first"] == ("of", 0)
        assert found["caught"] == (UserError, "the folder is not free")
        assert found["again"] == "still together"
    assert [found["bug"] for found in together] == [(KeyError, "'nothing'")] + 2 * [
        (RuntimeError, "process 0 failed: 'nothing'")
    ]


def test_shares_of_a_batch_make_the_batch(alone, together):
    for number, batch in enumerate(alone["batches"]):
        shares = [found["batches"][number] for found in together]
        assert [len(share) for share in shares] == [2, 2, 1]
        assert sorted(item for share in shares for item in share) == sorted(batch)


def test_gathering_keeps_the_order(together):
    assert all(found["ranks"] == [[0], [1], [2]] for found in together)
    assert all(found["objects"] == [{0}, {1}, {2}] for found in together)


def test_nothing_counted_gives_zero():
    total = torch.zeros((), requires_grad=True)
    mean = global_mean(total * 1, torch.tensor(0))
    mean.backward()
    assert (mean.item(), total.grad.item()) == (0, 1)


def test_processes_that_torchrun_did_not_start(monkeypatch):
    from faircl.distributed import init_process_group

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match=r"WORLD_SIZE is 2, but not LOCAL_RANK, .*; start several processes with torch"):
        init_process_group()


def test_one_process_meets_nobody(monkeypatch):
    from faircl.distributed import init_process_group

    monkeypatch.setenv("WORLD_SIZE", "1")
    init_process_group()
    assert (world_size(), rank(), dist.is_initialized()) == (1, 0, False)
    with pytest.raises(UserError, match="not free"):
        on_rank_zero(fail)


@pytest.mark.parametrize("found", ["abc", "0", "-2", ""])
def test_nonsense_in_the_environment_is_a_sentence(found, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", found)
    with pytest.raises(UserError, match=f"WORLD_SIZE is '{found}'"):
        launched_world_size()


def test_a_mean_counts_more_than_half_precision_can():
    total = torch.tensor(1000.0, dtype=torch.float16)
    assert global_mean(total, torch.tensor(100_000)).item() == pytest.approx(0.01, rel=1e-3)
