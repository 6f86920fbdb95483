"""Unknown scores against plain loops over pixels, classes and remembered features."""

import json
import math

import pytest
import torch
from torch.nn import functional as F

from faircl.checksums import write_checksums
from faircl.deploy import unknown_features
from faircl.deploy.known_features import KnownFeatures, load_known_features
from faircl.deploy.unknown import DEFAULT, LOGIT_SCORES, SCORES, UnknownScorer, default_score
from faircl.deploy.unknown_calibration import Calibration
from faircl.engine.reevaluate import load_network
from faircl.errors import UserError
from faircl.models.segmenter import SegOutput
from faircl.models.small import Small, SmallConfig
from faircl.runs.checkpoint import save_tensors

WIDTH, CLASSES, KEPT = 6, 4, 30
FEATURE_SCORES = tuple(name for name in SCORES if name not in LOGIT_SCORES)


def network(classes=CLASSES, width=WIDTH):
    torch.manual_seed(1)
    made = Small(SmallConfig(width=8, embedding=width))
    made.classifier.grow(classes)
    return made.eval()


def clusters(filled=(KEPT,) * CLASSES, seed=0):
    """Features of classes around distant centres, which are the prototypes; each class has its own spread."""
    generator = torch.Generator().manual_seed(seed)
    centres = 8 * torch.randn(len(filled), WIDTH, generator=generator)
    spread = torch.linspace(0.5, 1.5, len(filled))[:, None, None]
    features = (centres[:, None] + spread * torch.randn(len(filled), KEPT, WIDTH, generator=generator)).half()
    filled = torch.tensor(filled)
    features[torch.arange(KEPT) >= filled[:, None]] = 0
    return {"bank.prototypes": centres, "memory.features": features, "memory.filled": filled}


def write_step(folder, tensors, background=False):
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps({"background": background}))
    save_tensors(folder, "method", tensors, {"method": "faircl"})
    return folder


@pytest.fixture
def step(tmp_path):
    return write_step(tmp_path / "steps" / "00", clusters())


def output(rows, net):
    """The output of a network whose pixels have these features: one image of one row of pixels."""
    embedding = rows.T[None, :, None]
    return SegOutput(net.classifier(embedding).detach(), embedding, ())


def rows_of(step, known=True):
    features = load_known_features(step, True, torch.device("cpu")).features
    return features if known else features + 40 * F.normalize(torch.randn(len(features), WIDTH), dim=1)


# ---- every score against a plain loop


def softmax(logits):
    exp = [math.exp(z - max(logits)) for z in logits]
    return [e / sum(exp) for e in exp]


def one_pixel(name, feature, logits, features, labels, prototypes, itself=None):
    """A raw score in float64, by loops; ``itself`` is the feature's own place among the remembered ones."""
    classes = range(len(prototypes))
    if name == "max-softmax":
        return 1 - max(softmax(logits))
    if name == "entropy":
        return -sum(p * math.log(p) for p in softmax(logits) if p > 0) / math.log(len(logits))
    if name in ("energy", "max-logit"):
        total = sum(math.exp(z) for z in logits) if name == "energy" else math.exp(max(logits))
        return 1 / (1 + total)
    own = {c: torch.stack([f for f, label in zip(features, labels, strict=True) if label == c]) for c in classes}
    means = {c: own[c].mean(0) for c in classes}
    if name == "nearest":
        unit = [f / f.norm() for k, f in enumerate(features) if k != itself]
        return sorted(float((feature / feature.norm() - f).norm()) for f in unit)[9]
    if name in ("prototype", "class-mean", "class-mean-angle"):
        if name == "class-mean-angle":
            feature, means = feature / feature.norm(), {c: means[c] / means[c].norm() for c in classes}
            own = {c: own[c] / own[c].norm(dim=1, keepdim=True) for c in classes}
        centres = prototypes if name == "prototype" else means
        spread = {c: math.sqrt(sum(float((f - centres[c]).norm()) ** 2 for f in own[c]) / len(own[c])) for c in classes}
        return min(float((feature - centres[c]).norm()) / spread[c] for c in classes)
    within = torch.cat([own[c] - means[c] for c in classes])
    score = min(squared_mahalanobis(feature - means[c], within) for c in classes)
    if name == "mahalanobis":
        return score
    return score - squared_mahalanobis(feature - features.mean(0), features - features.mean(0))


def squared_mahalanobis(difference, residuals):
    """With the covariance shrunk by the formula of Chen et al. 2010, equation 23."""
    m, d = residuals.shape
    s = residuals.T @ residuals / m
    trace, trace_squared = float(torch.trace(s)), float(torch.trace(s @ s))
    rho = ((1 - 2 / d) * trace_squared + trace**2) / ((m + 1 - 2 / d) * (trace_squared - trace**2 / d))
    rho = min(rho, 1.0)
    shrunk = (1 - rho) * s + rho * trace / d * torch.eye(d, dtype=s.dtype)
    return float(difference @ torch.linalg.inv(shrunk) @ difference)


def share(scores, s):
    """u(s) by the definition in docs/unknown.md, for distinct scores."""
    ordered = sorted(scores)

    def percentile(p):
        place = p / 100 * (len(ordered) - 1)
        low = math.floor(place)
        return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])

    if s > percentile(95):
        return 1 - 0.05 / (1 + (s - percentile(95)) / ((percentile(99) - percentile(95)) / 4))
    if s < percentile(5):
        return 0.05 / (1 + (percentile(5) - s) / ((percentile(5) - percentile(1)) / 4))
    p = next(p for p in range(5, 95) if s <= percentile(p + 1))
    return (p + (s - percentile(p)) / (percentile(p + 1) - percentile(p))) / 100


@pytest.mark.parametrize("name", SCORES)
def test_a_score_equals_a_plain_loop(name, step):
    net = network()
    state = clusters()
    features = state["memory.features"].flatten(0, 1).double()
    labels = [c for c in range(CLASSES) for _ in range(KEPT)]
    prototypes = state["bank.prototypes"].double()
    rows = torch.cat([rows_of(step)[::17], rows_of(step, known=False)[::17]])
    weight, bias = (x.detach().double() for x in net.classifier.weight_and_bias())

    def raw(which, feature, itself=None):
        logits = (weight @ feature + bias).tolist()
        return one_pixel(which, feature, logits, features, labels, prototypes, itself)

    parts = name.split("+") if name in FEATURE_SCORES else []
    known = {part: [raw(part, f, k) for k, f in enumerate(features)] for part in parts}

    def surprise(scores):
        return -sum(math.log1p(-share(known[part], score)) for part, score in zip(parts, scores, strict=True))

    surprises = [surprise(pair) for pair in zip(*known.values(), strict=True)] if len(parts) == 2 else []

    def expected(feature):
        if not parts:
            return raw(name, feature)
        found = [raw(part, feature) for part in parts]
        return share(surprises, surprise(found)) if surprises else share(known[name], found[0])

    found = UnknownScorer.from_step(step, net, name)(output(rows, net))[0, 0]
    assert found.tolist() == pytest.approx([expected(row.double()) for row in rows], abs=1e-4)


# ---- what a score means


@pytest.mark.parametrize("name", FEATURE_SCORES)
def test_known_features_score_low_and_far_ones_high(name, step):
    net = network()
    scorer = UnknownScorer.from_step(step, net, name)
    known, far = (scorer(output(rows_of(step, kind), net)) for kind in (True, False))
    assert known.median() < 0.6
    if name != "class-mean-angle":  # lengths do not count there
        assert (far > 0.95).float().mean() > 0.8


@pytest.mark.parametrize("name", [n for n in FEATURE_SCORES if n != "nearest" and "nearest+" not in n])
def test_a_score_is_the_share_of_remembered_features_below_it(name, step):
    net = network()
    scores = UnknownScorer.from_step(step, net, name)(output(rows_of(step), net)).flatten()
    for level in (0.1, 0.5, 0.9, 0.95):
        assert float((scores < level).float().mean()) == pytest.approx(level, abs=0.02)


@pytest.mark.parametrize("name", ["prototype", "class-mean", "mahalanobis"])
def test_farther_is_less_known(name, step):
    net = network()
    first, centre = rows_of(step)[0], rows_of(step).mean(0)
    rows = first + torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None] * (first - centre)
    scores = UnknownScorer.from_step(step, net, name)(output(rows, net)).flatten()
    assert scores.diff().min() > 0
    assert scores.max() < 1


@pytest.mark.parametrize("name", SCORES)
def test_shape_type_and_range(name, step, monkeypatch):
    net = network()
    embedding = 5 * torch.randn(2, WIDTH, 3, 5, generator=torch.Generator().manual_seed(3))
    out = SegOutput(net.classifier(embedding).detach(), embedding, ())
    scores = UnknownScorer.from_step(step, net, name)(out)
    assert scores.shape == (2, 3, 5)
    assert scores.dtype == torch.float32
    assert scores.min() >= 0
    assert scores.max() <= 1
    for image in range(2):  # image by image, and the same in small parts
        one = UnknownScorer.from_step(step, net, name)(
            SegOutput(out.logits[image : image + 1], embedding[image : image + 1], ())
        )
        assert torch.allclose(one[0], scores[image], atol=1e-5)
    monkeypatch.setattr(unknown_features, "CELLS", 4 * WIDTH)
    assert torch.allclose(UnknownScorer.from_step(step, net, name)(out), scores, atol=1e-5)


@pytest.mark.parametrize("name", [DEFAULT, "max-softmax", "energy"])
def test_half_precision_and_autocast_are_scored_in_float32(name, step):
    net = network()
    scorer = UnknownScorer.from_step(step, net, name)
    rows = torch.cat([rows_of(step), rows_of(step, known=False)]).bfloat16()
    out = output(rows.float(), net)
    half = SegOutput(out.logits.bfloat16(), rows.T[None, :, None], ())
    exact = scorer(SegOutput(half.logits.float(), half.embedding.float(), ()))
    with torch.autocast("cpu", torch.bfloat16):
        inside = UnknownScorer.from_step(step, net, name)(half)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, exact)


@pytest.mark.parametrize("known", [[0.0] * 20, [1.0, 1.0, 1.0, 2.0], list(range(300)), [5.0]], ids=len)
def test_the_map_to_shares_is_monotone_whatever_is_known(known):
    share = Calibration.of(torch.tensor(known, dtype=torch.float32))
    at = torch.linspace(-10, 320, 2000)
    assert share(at).diff().min() >= 0
    assert share.surprise(at).diff().min() >= 0
    assert share(at).min() > 0
    assert share(at).max() <= 1
    at = at[share(at) < 0.999]
    assert torch.allclose(share.surprise(at), -torch.log1p(-share(at)), rtol=1e-3)


# ---- what is there and what is not


def test_a_class_without_features_counts_for_nothing(tmp_path):
    net = network()
    filled = write_step(tmp_path / "a" / "00", clusters((KEPT, 0, 20, 1)))
    state = clusters((KEPT, 0, 20, 1))
    kept = torch.tensor([0, 2, 3])
    without = write_step(tmp_path / "b" / "00", {name: tensor[kept] for name, tensor in state.items()})
    out = output(rows_of(filled), net)
    for name in SCORES:
        scores = UnknownScorer.from_step(filled, net, name)(out)
        assert scores.isfinite().all()
        assert torch.equal(scores, UnknownScorer.from_step(without, net, name)(out))


def test_a_single_remembered_feature(tmp_path):
    net = network()
    step = write_step(tmp_path / "00", clusters((1, 0, 0, 0)))
    for name in SCORES:
        assert UnknownScorer.from_step(step, net, name)(output(torch.randn(5, WIDTH), net)).isfinite().all()


def test_the_features_of_an_inner_method_are_found(tmp_path, step):
    net = network()
    inner = write_step(tmp_path / "inner" / "00", {f"inner.{name}": tensor for name, tensor in clusters().items()})
    out = output(rows_of(step), net)
    assert torch.equal(UnknownScorer.from_step(inner, net)(out), UnknownScorer.from_step(step, net)(out))


@pytest.mark.parametrize("tensors", [{"other": torch.zeros(1)}, clusters((0,) * CLASSES)], ids=["none", "empty"])
def test_without_features_only_logits_are_scored(tensors, tmp_path):
    net, step = network(), write_step(tmp_path / "00", tensors)
    assert default_score(step) in LOGIT_SCORES
    for name in LOGIT_SCORES:
        assert UnknownScorer.from_step(step, net, name)(output(torch.randn(5, WIDTH), net)).isfinite().all()
    for name in FEATURE_SCORES:
        with pytest.raises(UserError, match=r"has none, as its method keeps none; choose one of max-softmax"):
            UnknownScorer.from_step(step, net, name)


def test_wrong_names_and_networks_are_refused_in_a_sentence(step):
    with pytest.raises(UserError, match=r"Unknown score 'entropie'.*entropy"):
        UnknownScorer.from_step(step, network(), "entropie")
    with pytest.raises(UserError, match=r"have 6 channels, but the network's embedding has 8"):
        UnknownScorer.from_step(step, network(width=8))


def test_a_damaged_file_is_refused_in_a_sentence(step):
    write_checksums(step)
    (step / "method.safetensors").write_bytes(b"?")
    with pytest.raises(UserError, match=r"method\.safetensors is missing or damaged"):
        UnknownScorer.from_step(step, network())


# ---- background


def test_background_that_does_not_count_as_known(tmp_path):
    net = network()
    step = write_step(tmp_path / "00", clusters(), background=True)
    without = write_step(tmp_path / "01", {name: tensor[1:] for name, tensor in clusters().items()})
    out = output(rows_of(step), net)
    for name in (n for n in FEATURE_SCORES if "+" not in n):
        scores = UnknownScorer.from_step(step, net, name, background=False)(out)
        assert torch.equal(scores, UnknownScorer.from_step(without, net, name)(out))
        if name != "nearest":
            assert scores[0, 0, :KEPT].mean() > scores[0, 0, KEPT:].mean()
    probability = out.logits.softmax(1)[:, 1:].amax(1)
    found = UnknownScorer.from_step(step, net, "max-softmax", background=False)(out)
    assert torch.allclose(found, 1 - probability)
    found = UnknownScorer.from_step(step, net, "energy", background=False)(out)
    assert torch.allclose(found, 1 / (1 + out.logits[:, 1:].exp().sum(1)))


def test_data_without_background_has_no_such_variant(step):
    net = network()
    out = output(rows_of(step), net)
    for name in SCORES:
        scores = [UnknownScorer.from_step(step, net, name, background=kind)(out) for kind in (True, False)]
        assert torch.equal(*scores)


# ---- a run


def test_a_trained_run_is_scored(tiny_train, tmp_path):
    tiny_run = tiny_train(tmp_path / "run")
    net = load_network(tiny_run, tiny_run.config(), 1).eval()
    step = tiny_run.step_path(1)
    assert default_score(step) == DEFAULT
    out = net(torch.rand(2, 3, 32, 32))
    for name in SCORES:
        scores = UnknownScorer.from_step(step, net, name)(out)
        assert scores.shape == (2, *out.logits.shape[-2:])
        assert scores.isfinite().all()
        assert not scores.requires_grad


def test_features_beyond_all_numbers_are_unknown():
    known = KnownFeatures(torch.randn(8, 3), torch.arange(8) // 4, torch.randn(2, 3))
    score = unknown_features.RelativeMahalanobis(known)
    assert Calibration.of(score.of_known())(score(torch.full((2, 3), 1e25))).tolist() == [1, 1]
