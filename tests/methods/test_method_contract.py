"""What every method of the registry must do, whatever it computes."""

import copy

import pytest
import torch
from grids import grid
from tiny_steps import PERIOD, Run, World, through_disk

from faircl.labels import IGNORE
from faircl.methods.base import MethodConfig
from faircl.methods.state import MethodState, load_method_state, method_state
from faircl.registry import METHODS

TREATMENTS = ["assigned", "teacher", "online", "unbiased", "paper", "ignore", "background"]
UNIT = {"normalise": True, "margin": 1.0, "scale_margin": False}
FREEZING = {"ewf", "dft", "ssul", "ssul-m", "rcil"}  # methods that freeze some of the network on later steps
QUICK = {"period": PERIOD, "quota": 20, "queue": 50}


def named(options):
    return "-".join(str(v) if k in ("name", "unlabelled") else f"{k}={v}" for k, v in options.items())


def faircl(**options):
    return {"name": "faircl", **options}


def paper(**options):
    return {"name": "faircl-paper", **options}


# Methods that need attentions, which the tiny steps' network lacks, have tests of their own.
NAMES = [name for name in METHODS.names() if not METHODS.get(name).needs.attentions]
VARIANTS = [{"name": name} for name in NAMES]
VARIANTS += [paper(unlabelled=u, assign=a) for u in TREATMENTS for a in ("prototype", "softmax")]
VARIANTS += [paper(fairness=f) for f in ("importance", "adjust", "kl", "literal")]
VARIANTS += [paper(consistency=f) for f in ("smooth", "literal")]
VARIANTS += [paper(**UNIT), paper(embedding="backbone"), paper(embedding="backbone", **UNIT, assign="prototype")]
VARIANTS += [paper(reject=0.3, cap_assigned=True), paper(fairness="kl", histogram_momentum=0.9)]
VARIANTS += [paper(distance_order=3.0, window=5), paper(init="random"), paper(init="prototype")]
VARIANTS += [faircl(unlabelled=u) for u in ("assigned", "paper", "unbiased")]
VARIANTS += [faircl(fairness=f) for f in ("adjust", "kl", "literal")]
UNKNOWN = {"unknown_cluster": True, "lambda_cluster": 0.02, "margin": 5}
VARIANTS += [f(unlabelled=u, **UNKNOWN) for f, u in ((paper, "paper"), (faircl, "soft"))]
VARIANTS += [faircl(windows=1, soft_classes=1), faircl(soft_classes=300), faircl(replay=3, replay_batch=7)]
VARIANTS += [faircl(lambda_replay=0), faircl(lambda_replay=0, embedding="backbone"), faircl(average=0.5)]
VARIANTS += [faircl(lambda_replay=0, embedding="backbone", **UNIT), faircl(lambda_soft=0), faircl(lambda_cons=1)]
each_variant = grid("options", VARIANTS, quick=len(NAMES), ids=named)  # every method, and later its variants
each_method = pytest.mark.parametrize("name", NAMES)
both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def run(options, background=True, **more):
    quick = QUICK if options["name"].startswith("faircl") else {}
    return Run(World(background), **quick, **options, **more)


@both_worlds
@each_variant
def test_two_steps(options, background):
    r = run(options, background)
    for step in (0, 1):
        r.begin(step)
        assert r.model.classifier.classes == r.world.channels[step]
        for _ in range(PERIOD + 2):
            batch, out, targets, terms = r.forward()
            assert terms
            assert all(value.shape == () and value.isfinite() for value in terms.values())
            assert targets.dtype == torch.int64
            assert targets.shape == batch.labels.shape
            assert ((targets < r.world.channels[step]) | (targets == IGNORE)).all()
            assert (targets[batch.labels == IGNORE] == IGNORE).all()
            labelled = (batch.labels != IGNORE) & (batch.labels != r.world.unlabelled)
            assert torch.equal(targets[labelled], batch.labels[labelled])
            torch.stack(list(terms.values())).sum().backward()
            moving = {n: p for n, p in r.model.named_parameters() if p.requires_grad}
            if step == 0 or options["name"] not in FREEZING:
                assert len(moving) == len(list(r.model.parameters()))
            missing = [n for n, p in moving.items() if p.grad is None or not p.grad.isfinite().all()]
            assert missing == []
            assert all(p.grad.any() for n, p in moving.items() if n.startswith("classifier."))
            assert any(n.startswith("classifier.") for n in moving)
            stem = r.model.backbone.stem[0].weight
            assert not stem.requires_grad or stem.grad.any()
            r.update(batch, out, targets)
        r.end()


@each_variant
def test_gradients_go_to_the_network_only(options):
    r = run(options).to_step_one()
    r.iterate(PERIOD + 1)
    assert list(r.method.parameters()) == []
    assert not any(buffer.requires_grad for buffer in r.method.buffers())
    if r.teacher is not None:
        assert all(p.grad is None for p in r.teacher.parameters())
    if hasattr(r.method, "bank"):
        old = slice(1, r.world.channels[0])
        before = r.method.bank.prototypes[old].clone()
        r.iterate(PERIOD)
        assert torch.equal(r.method.bank.prototypes[old], before)


@both_worlds
@each_variant
def test_ignore_everywhere_is_finite(options, background):
    r = run(options, background).to_step_one()
    r.iterate(PERIOD)
    batch = r.batch()
    batch = batch._replace(labels=torch.full_like(batch.labels, IGNORE))
    for _ in range(2):
        _, _, targets, terms = r.forward(batch)
        assert (targets == IGNORE).all()
        assert terms["seg"].item() == 0
        sum(terms.values()).backward()
        assert all(value.isfinite() for value in terms.values())
        assert all(p.grad.isfinite().all() for p in r.model.parameters() if p.grad is not None)
        r.iterate(1, batch)


def reloaded(r, tmp_path, options):
    """The same network under a fresh method that read the saved state."""
    fresh = run(options)
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    fresh.model = copy.deepcopy(r.model)
    return fresh


@each_variant
def test_state_round_trip_between_steps(options, tmp_path):
    r = run(options).begin(0)
    r.iterate(PERIOD + 2)
    r.end()
    fresh = reloaded(r, tmp_path, options)
    histories = [x.begin(1).iterate(2 * PERIOD) for x in (r, fresh)]
    assert histories[0] == histories[1]
    states = [method_state(x.method) for x in (r, fresh)]
    assert list(states[0].tensors) == list(states[1].tensors)
    assert all(torch.equal(states[0].tensors[name], states[1].tensors[name]) for name in states[0].tensors)
    assert states[0].numbers == states[1].numbers


@pytest.mark.parametrize("step", [0, 1])
@each_method
def test_state_round_trip_within_a_step(name, step, tmp_path):
    r = run({"name": name})
    r = r.begin(0) if step == 0 else r.to_step_one()
    r.iterate(PERIOD + 2)
    fresh = run({"name": name}).begin(0)
    fresh = fresh if step == 0 else fresh.end().begin(1)
    fresh.model.load_state_dict(r.model.state_dict())
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    fresh.teacher, fresh.context.assigned, fresh.iteration = r.teacher, r.context.assigned, r.iteration
    fresh.context.soft = r.context.soft  # a resumed run makes them again, with the old network that made these
    wanted, got = r.forward()[-1], fresh.forward()[-1]
    assert {k: v.item() for k, v in wanted.items()} == {k: v.item() for k, v in got.items()}


def test_state_of_another_method_is_refused():
    fine, fair = run({"name": "finetune"}), run({"name": "faircl"})
    with pytest.raises(ValueError, match=r"unexpected.*bank\.prototypes"):
        load_method_state(fine.method, method_state(fair.method))
    with pytest.raises(ValueError, match=r"missing.*bank\.prototypes"):
        load_method_state(fair.method, MethodState({}, {}))


@pytest.mark.parametrize("change", [{"updates": None}, {"updates": 2.0}, {"domain": 0}, {"more": 1}], ids=str)
def test_numbers_that_do_not_fit_are_refused(change):
    method = run({"name": "faircl"}).method
    tensors, numbers = method_state(method)
    numbers = {name: value for name, value in (numbers | change).items() if value is not None}
    with pytest.raises(ValueError, match=next(iter(change))):
        load_method_state(method, MethodState(tensors, numbers))


@each_method
def test_the_state_is_tensors_and_plain_numbers(name):
    r = run({"name": name}).to_step_one()
    r.iterate(PERIOD)
    tensors, numbers = method_state(r.method)
    assert all(type(value) in (bool, int, float) for value in numbers.values())
    # A single number in a tensor would have to be waited for.
    assert [key for key, value in tensors.items() if value.ndim == 0] == []


@pytest.mark.parametrize("step", [0, 1])
@each_variant
def test_stages_are_read_only_where_they_are_needed(options, step):
    r = run(options)
    r = r.begin(0) if step == 0 else r.to_step_one()
    batch = r.batch()
    out, old = r.model(batch.image), None if r.teacher is None else r.teacher(batch.image)
    if not r.method.needs.stages:
        out, old = out._replace(stages=()), None if old is None else old._replace(stages=())
    targets = r.method.targets(batch, out, old)
    assert r.method.losses(batch, out, old, targets)
    r.method.measures(batch, out, old, targets)
    r.method.observe(batch, out, targets, 1)


@both_worlds
@pytest.mark.parametrize("step", [0, 1])
def test_all_weights_zero_is_fine_tuning(step, background):
    off = paper(lambda_cluster=0, lambda_class=0, lambda_cons=0, unlabelled="background", init="random")
    seen = []
    for options in (off, {"name": "finetune"}):
        r = run(options, background)
        r = r.begin(0) if step == 0 else r.to_step_one()
        terms = r.forward()[-1]
        assert list(terms) == ["seg"]
        terms["seg"].backward()
        seen.append((terms["seg"].item(), [p.grad for p in r.model.parameters()]))
    assert seen[0][0] == seen[1][0]
    assert all(torch.equal(a, b) for a, b in zip(seen[0][1], seen[1][1], strict=True))


@grid("norm", ["group", "batch"])
@grid("name", NAMES, quick=lambda name: name in ("finetune", "faircl", "faircl-paper", "plop", "ssul"))
def test_overfits_two_images(name, norm):
    r = run({"name": name}, norm=norm).begin(0)
    history = [sum(terms.values()) for terms in r.iterate(80)]
    assert sum(history[-5:]) / 5 < 0.5 * history[0]
    r.model.eval()
    batch, out, _, _ = r.forward()
    up = torch.nn.functional.interpolate(out.logits, batch.labels.shape[-2:], mode="bilinear")
    valid = batch.labels != IGNORE
    assert (up.argmax(1) == batch.labels)[valid].float().mean() > 0.8


@each_method
def test_growth_repeats_from_the_seed(name):
    heads = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        r = run({"name": name, "init": "random"})
        torch.manual_seed(noise)  # a global state that growth must neither use nor disturb
        before = torch.get_rng_state()
        r.begin(0)
        assert torch.equal(torch.get_rng_state(), before)
        heads.append(r.model.classifier.heads[0].weight)
    assert torch.equal(heads[0], heads[1])


@each_method
def test_declares_what_the_table_of_methods_shows(name):
    method = METHODS.get(name)
    assert method.name == name
    assert method.summary
    assert method.paper
    assert issubclass(method.Config, MethodConfig)
    assert method.Config().name == name
    for field in set(method.Config.model_fields) - set(MethodConfig.model_fields):
        assert method.Config.model_fields[field].description, field
    key = run({"name": name}).method.step0_key()
    other = run({"name": METHODS.names()[0 if name != "finetune" else 1]}).method.step0_key()
    assert key != other
