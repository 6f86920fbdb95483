"""CUDA graphs: their setup and teardown on a CPU, and on a GPU equality with the eager network."""

import copy
from contextlib import contextmanager

import pytest
import torch

from faircl.acceleration import cuda_graphs as graphs
from faircl.acceleration.cuda_graphs import Replay, can_be_replayed, replayed
from faircl.config.run import resolve
from faircl.engine.network import build_model, move_to_device, set_training_mode
from faircl.errors import UserError
from faircl.methods.faircl import FairCL, FairCLConfig
from faircl.methods.finetune import FineTune, FineTuneConfig
from faircl.methods.needs import Needs
from faircl.methods.plop import PLOP, PLOPConfig


def is_recorded(network):
    """Whether a recording overrides the network's ``embed``."""
    return "embed" in vars(network)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs: needs a GPU")


def network(*settings):
    config = resolve(
        {"data": "scenes", "model": "small", "method": "finetune", "train": {"batch": 2, "crop": 32}}, settings
    )
    model = build_model(config, pretrained=False)
    model.classifier.grow(4)
    return model.train(), config


def test_a_cpu_replays_nothing(silent):
    model, config = network()
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cpu"), silent()):
        assert not is_recorded(model)


@pytest.mark.parametrize(
    "setting", ["train.graphs=false", "model={name: segformer, variant: b0}", "optim.accumulate=2", ""]
)
def test_graphs_are_left_out_where_they_cannot_be(setting):
    model, config = network(*([setting] if setting else []))
    if "segformer" in setting:
        config = config.model_copy(update={"train": config.train.model_copy(update={"checkpointing": True})})
    assert can_be_replayed(model, FineTune(FineTuneConfig(), model), config) == (setting == "")


def test_hooks_on_a_pass_cannot_be_recorded():
    model, config = network()
    method = FineTune(FineTuneConfig(), model)
    assert can_be_replayed(model, method, config)
    hook = model.register_forward_pre_hook(lambda *_: None)
    assert not can_be_replayed(model, method, config)
    hook.remove()
    hook = model.backbone.register_forward_hook(lambda *_: None)
    assert not can_be_replayed(model, method, config)
    hook.remove()
    hook = model.decoder.register_full_backward_hook(lambda *_: None)
    assert not can_be_replayed(model, method, config)
    hook.remove()
    model.decoder.forward = model.decoder.forward
    assert not can_be_replayed(model, method, config)


def test_a_failed_recording_leaves_the_network_as_it_was():
    model, _ = network()
    before = [buffer.clone() for buffer in model.buffers()]

    def fails():
        with graphs.unchanged_buffers(model):
            model(torch.rand(2, 3, 32, 32))
            assert any(not torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True))
            raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        fails()
    assert all(torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True))


def test_a_network_that_cannot_be_recorded_runs_as_it_is(silent, monkeypatch):
    monkeypatch.setattr(graphs, "_record", lambda *_: "called a synchronizing CUDA operation")
    model, config = network()
    reporter = silent()
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cuda"), reporter):
        assert not is_recorded(model)
    (said,) = reporter.said
    assert "cannot be recorded" in said
    assert "(called a synchronizing CUDA operation)" in said


@pytest.fixture
def as_it_is(monkeypatch):
    """Replace recording by the function itself; return the arguments of the recording."""
    given = []

    def run_on(function, arguments, allow_unused_input):
        given.extend(arguments)
        function(*arguments)
        return function

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", run_on)
    return given


@pytest.mark.parametrize("uses_stages", [False, True])
def test_gradients_of_a_recording_reach_the_parameters_themselves(uses_stages, as_it_is):
    model, _ = network()
    model.backbone.stem.requires_grad_(False)
    image = torch.rand(2, 3, 32, 32)
    replay = Replay(model, graphs._Embedding(model, uses_stages, "fp32"), torch.zeros_like(image))
    trained = [p for part in (model.backbone, model.decoder) for p in part.parameters() if p.requires_grad]
    _, *aliases = as_it_is
    assert [one.data_ptr() for one in aliases] == [one.data_ptr() for one in trained]
    assert not any(one is other for one, other in zip(aliases, trained, strict=True))
    gradients = []
    for run in (replay, model.embed):
        model.zero_grad()
        stages, _, embedding = run(image)
        assert bool(stages) == (uses_stages or run is not replay)
        assert all(stage.requires_grad for stage in stages[-1:])  # the stem is frozen
        embedding.square().sum().backward()
        gradients.append([p.grad.clone() for p in trained])
    assert all(one.grad is None for one in aliases)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert replay(torch.rand(2, 3, 16, 16))[2].shape[-1] == 4  # another size: computed, not replayed


def test_a_recording_that_fails_is_a_sentence(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fails)
    model, _ = network()
    with pytest.raises(UserError, match=r"\(operation not permitted when stream is capturing\); set train.graphs to"):
        Replay(model, graphs._Embedding(model, False, "fp32"), torch.rand(2, 3, 32, 32))


@on_gpu
def test_a_network_that_waits_for_the_device_is_known_before_it_is_recorded(silent):
    model, config = network()
    move_to_device(model, torch.device("cuda"))
    decode = model.decoder.forward
    model.decoder.forward = lambda stages: decode(stages) * float(stages[0].mean().item() > -1e9)
    reporter = silent()
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cuda"), reporter):
        assert not is_recorded(model)
        for _ in range(3):  # nothing is left in the middle of a recording
            model(torch.rand(2, 3, 32, 32, device="cuda")).logits.sum().backward()
    (said,) = reporter.said
    assert "cannot be recorded" in said
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_recording_takes_the_place_of_the_network_in_training_alone(as_it_is):
    model, _ = network()
    image = torch.rand(2, 3, 32, 32)
    replay = Replay(model, graphs._Embedding(model, True, "fp32"), torch.zeros_like(image))
    calls, run = [], replay.run
    replay.run = lambda *given: calls.append(1) or run(*given)
    vars(model)["embed"] = replay
    model(image)
    assert calls == [1]
    with torch.no_grad():
        model(image)
    model.eval()(image)
    model.train()(image.requires_grad_())
    assert calls == [1]


class Recorded:
    """A fake graph on a CPU: replay calls a function."""

    def replay(self):
        for run in self.runs:
            run()


@pytest.fixture
def forward_graphs(monkeypatch):
    """Fake the recording of a teacher's forward pass on a CPU."""

    @contextmanager
    def record(graph):
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph", record)


@pytest.mark.parametrize("uses_stages", [False, True])
def test_a_teacher_is_recorded_without_gradients(uses_stages, forward_graphs, monkeypatch):
    model, _ = network()
    teacher = model.eval().requires_grad_(False)
    recorded = graphs._Embedding(teacher, uses_stages, "fp32")
    image, other = torch.rand(2, 2, 3, 32, 32)
    with torch.no_grad():
        expected = teacher.embed(image)
        replay = Replay(teacher, recorded, image)
        given = []
        monkeypatch.setattr(Recorded, "runs", [lambda: given.append(1)], raising=False)
        vars(teacher)["embed"] = replay
        stages, _, embedding = replay(other)
        assert given == [1]
        assert torch.equal(image, other)  # the recording reads there
        assert torch.equal(embedding, expected[2])  # the recording's memory: a replay would have written there
        assert all(torch.equal(*pair) for pair in zip(stages, expected[0], strict=uses_stages))
        teacher(other)
        assert given == [1, 1]
        teacher(torch.rand(2, 3, 16, 16))  # another size, which was not recorded
        assert given == [1, 1]
    teacher(other)  # with gradients, which it has not recorded
    teacher.train()
    with torch.no_grad():
        teacher(other)
    assert given == [1, 1]


def test_methods_say_whether_they_read_stages():
    model, _ = network()
    assert not FineTune(FineTuneConfig(), model).needs.stages
    assert not FairCL(FairCLConfig(), model).needs.stages
    assert FairCL(FairCLConfig(embedding="backbone", lambda_replay=0), model).needs.stages
    assert PLOP(PLOPConfig(), model).needs.stages


@pytest.mark.parametrize("hooked", [False, True])
def test_network_and_teacher_are_recorded_and_let_go(hooked, silent, monkeypatch):
    model, config = network()
    teacher = copy.deepcopy(model).eval()
    if hooked:
        teacher.backbone.register_forward_hook(lambda *_: None)

    def record(network, *_):
        vars(network)["embed"] = object.__new__(Replay)
        return ""

    monkeypatch.setattr(graphs, "_record", record)
    method = FineTune(FineTuneConfig(), model)
    with replayed(model, method, config, torch.device("cuda"), silent(), teacher):
        assert [is_recorded(one) for one in (model, teacher)] == [True, not hooked]
    assert not any(is_recorded(one) for one in (model, teacher))


def test_a_teacher_that_cannot_be_recorded_leaves_nothing_behind(silent, monkeypatch):
    model, config = network()
    teacher, freed = copy.deepcopy(model).eval(), []

    def record(network, *_):
        assert not freed  # a recording points to what would be freed
        if network is teacher:
            raise UserError("too little memory")
        vars(network)["embed"] = object.__new__(Replay)
        return ""

    monkeypatch.setattr(graphs, "_record", record)
    monkeypatch.setattr(graphs, "_free_cublas_workspaces", lambda: freed.append(is_recorded(model)))
    method = FineTune(FineTuneConfig(), model)
    with (
        pytest.raises(UserError, match="too little memory"),
        replayed(model, method, config, torch.device("cuda"), silent(), teacher),
    ):
        pytest.fail("nothing was recorded")
    assert freed == [False]
    assert not is_recorded(model)


@pytest.mark.parametrize("at", [1, 2, None])
def test_a_kernel_that_fails_is_known_before_it_is_recorded(at, monkeypatch):
    modes, passes = [], []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def both(*_):
        passes.append(list(modes))
        if len(passes) == at:
            raise TypeError("no such\n  instruction")  # Triton's own errors are no RuntimeErrors either

    monkeypatch.setattr(graphs, "_both_passes", both)
    assert graphs.recording_problem(None, None) == ("" if at is None else "no such instruction")
    assert passes == [[], ["error"]][: at or 2]
    assert modes[-1] == 0


def test_what_cublas_works_in_stays_while_a_recording_does(as_it_is, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    monkeypatch.setattr(graphs, "recording_problem", lambda *_: "")
    monkeypatch.setattr(graphs, "_free_cublas_workspaces", lambda: pytest.fail("the recording points there"))
    model, config = network()
    assert graphs._record(model, False, config.train, torch.device("cpu")) == ""
    assert is_recorded(model)


@on_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_replayed_teacher_is_the_teacher_itself(precision, silent):
    model, config = network(f"train.precision={precision}")
    move_to_device(model, torch.device("cuda"))
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    images = torch.rand(3, 2, 3, 32, 32, generator=torch.Generator().manual_seed(1)).cuda()
    results = []
    for on in (False, True):
        config = config.model_copy(update={"train": config.train.model_copy(update={"graphs": on})})
        method = FineTune(FineTuneConfig(), model)
        method.needs = Needs(stages=True)
        with replayed(model, method, config, torch.device("cuda"), silent(), teacher):
            assert is_recorded(teacher) == on
            for image in images:
                with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                    out = teacher(image)
                results.append([out.logits.clone(), *(stage.clone() for stage in out.stages)])
    for ones, others in zip(results[:3], results[3:], strict=True):
        for one, other in zip(ones, others, strict=True):
            assert torch.allclose(one.float(), other.float(), atol=1e-5 if precision == "fp32" else 1e-2)


@on_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("uses_stages", [False, True])
def test_a_replayed_network_is_the_network_itself(uses_stages, precision, silent):
    results = []
    for on in (False, True):
        torch.manual_seed(0)
        model, config = network(f"train.graphs={str(on).lower()}", f"train.precision={precision}")
        move_to_device(model, torch.device("cuda"))
        method = FineTune(FineTuneConfig(), model)
        method.needs = Needs(stages=uses_stages)
        image = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)).cuda()
        with replayed(model, method, config, torch.device("cuda"), silent()):
            assert is_recorded(model) == on
            for _ in range(2):
                model.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                    out = model(image)
                (out.logits.float().square().mean() + out.embedding.float().square().mean()).backward()
        stages = out.stages if uses_stages else ()  # a recording without them has none
        results.append([out.logits, *stages, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one.float(), other.float(), atol=1e-5 if precision == "fp32" else 1e-2)


@on_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("frozen", ["never", "always"])
@pytest.mark.parametrize(
    "name", ["{name: deeplabv3, backbone: resnet50}", "{name: segformer, variant: b0, drop_path: 0}"]
)
def test_a_recorded_network_is_the_plain_one(name, frozen, precision, silent, monkeypatch):
    """In a recording norms are computed by kernels; rounding errors grow from block to block either way."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    settings = ("train.batch=4", "train.crop=96", f"train.frozen_norm={frozen}")
    results = []
    for kind, on, dtype in (
        ("fp32", False, torch.float64), (precision, False, torch.float32), (precision, True, torch.float32)
    ):  # fmt: skip
        torch.manual_seed(0)
        model, config = network(f"model={name}", *settings, f"train.precision={kind}", f"train.graphs={on}")
        move_to_device(model, torch.device("cuda"))
        set_training_mode(model.to(dtype), config, 0)
        image = torch.rand(4, 3, 96, 96, generator=torch.Generator().manual_seed(1)).to("cuda", dtype)
        method = FineTune(FineTuneConfig(), model)
        method.needs = Needs(stages=True)  # the embedding has been through dropout
        with replayed(model, method, config, torch.device("cuda"), silent()):
            assert is_recorded(model) == on
            with torch.autocast("cuda", torch.bfloat16, enabled=kind == "bf16"):
                last = model(image).stages[-1]
            last.to(dtype).square().mean().backward()
        buffers = [buffer for buffer in model.backbone.buffers() if buffer.is_floating_point()]
        results.append([last.detach(), *(p.grad for p in model.backbone.parameters()), *buffers])
    for exact, plain, recorded in zip(*results, strict=True):
        apart, usual = (float((one - exact).norm()) for one in (recorded, plain))
        assert apart <= 2 * usual + (1e-3 if precision == "fp32" else 0.03) * float(exact.norm()) + 1e-6
