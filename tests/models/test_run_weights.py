"""``model.weights`` that names a run or one of its steps."""

import json

import pytest
import torch
from foreign_networks import read_json
from network_tester import images, make
from safetensors.torch import save_file
from weight_sources import B0, MOBILENET

from faircl.checksums import write_checksums
from faircl.errors import UserError
from faircl.models.run_weights import find_step

PLUS = {"name": "deeplabv3plus", "backbone": "mobilenet_v2"}
TIMM = {"name": "timm", "backbone": "resnet10t", "width": 16}
VIT = {"name": "vit", "backbone": "vit_tiny_patch16_224", "width": 16}


def write_step(run, step, config, seed):
    """Write the files of a step that weights are read from; return its network."""
    torch.manual_seed(seed)
    network = make(config)
    network.classifier.grow(3)
    folder = run / "steps" / f"{step:02d}"
    folder.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, folder / "model.safetensors")
    (folder / "model.json").write_text(json.dumps({"model": network.name, "heads": [3]}), encoding="utf-8")
    write_checksums(folder)
    return network.eval()


def write_run(run, config, steps=1, evaluated=1):
    networks = [write_step(run, step, config, seed=step) for step in range(steps)]
    (run / "config.yaml").write_text("seed: 0\n", encoding="utf-8")
    lines = [json.dumps({"kind": kind, "step": step}) for step in range(evaluated) for kind in ("train", "eval")]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return networks


def started(config, weights):
    torch.manual_seed(99)
    network = make(config | {"weights": str(weights)})
    network.load_pretrained()
    network.classifier.grow(2)
    return network.eval()


@torch.no_grad()
def same_embedding(network, expected):
    batch = images()
    torch.testing.assert_close(network(batch).embedding, expected(batch).embedding)


@pytest.mark.parametrize("config", [B0, MOBILENET, PLUS, TIMM, VIT], ids=lambda c: c["name"])
def test_backbone_and_decoder_are_those_of_the_step(config, tmp_path):
    (source,) = write_run(tmp_path / "run", config)
    network = started(config, tmp_path / "run")
    same_embedding(network, source)
    assert network.classifier.sizes == [2]


def test_the_last_finished_step_or_the_one_that_is_named(tmp_path):
    run = tmp_path / "run"
    networks = write_run(run, B0, steps=3, evaluated=2)  # step 2 was saved, but not evaluated
    same_embedding(started(B0, run), networks[1])
    same_embedding(started(B0, run / "steps" / "00"), networks[0])
    same_embedding(started(B0, run / "steps" / "02" / "model.safetensors"), networks[2])


def test_what_does_not_fit_is_one_sentence(tmp_path):
    run = tmp_path / "run"
    write_run(run, MOBILENET)
    with pytest.raises(UserError, match=r"steps/00 do not fit network 'segformer' b0: \d+ missing"):
        started(B0, run)
    with pytest.raises(UserError, match=r"do not fit network 'deeplabv3plus' with mobilenet_v2"):
        started(PLUS, run)
    (run / "steps" / "07").mkdir()
    with pytest.raises(UserError, match=r"There are no weights at .*steps/07/.*a run or one of its steps"):
        started(MOBILENET, run / "steps" / "07")


def test_a_run_without_a_finished_step_and_a_damaged_one(tmp_path):
    run = tmp_path / "run"
    write_run(run, MOBILENET, evaluated=0)
    with pytest.raises(UserError, match="has no finished step"):
        started(MOBILENET, run)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="has no finished step"):
        started(MOBILENET, run)
    path = run / "steps" / "00" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        started(MOBILENET, run / "steps" / "00")


def test_a_run_that_lost_its_last_step_does_not_lend_the_one_before(tmp_path):
    run = tmp_path / "run"
    write_run(run, MOBILENET, steps=1, evaluated=2)
    with pytest.raises(UserError, match=r"steps/01/model\.safetensors is missing, though the run has evaluated"):
        started(MOBILENET, run)
    assert find_step(str(run / "steps" / "00")) == run / "steps" / "00"


def test_the_only_step_of_joint_training(tmp_path):
    (source,) = write_run(tmp_path / "run", B0)
    line = json.dumps({"kind": "eval", "step": 5})  # a task of six steps, learned at once
    (tmp_path / "run" / "metrics.jsonl").write_text(line + "\n", encoding="utf-8")
    same_embedding(started(B0, tmp_path / "run"), source)


def test_reserved_words_are_no_runs(tmp_path, monkeypatch):
    write_run(tmp_path / "imagenet", MOBILENET)
    monkeypatch.chdir(tmp_path)
    assert find_step("imagenet") is None
    assert find_step("./imagenet") is not None


@pytest.mark.slow
def test_a_run_starts_from_another_runs_step(tiny_train, tmp_path):
    """Two runs of the engine: the second begins with the backbone of the first."""
    model = "model={name: timm, backbone: resnet10t, width: 16}"
    short = ("scenario.task=offline", "train.epochs=0.4")
    first = tiny_train(tmp_path / "first", model, *short)
    second = tiny_train(tmp_path / "second", model, *short, f"model.weights={first.path}", "optim.lr=1e-9")
    assert second.config().model.weights == str(first.path)
    assert read_json(second.step_path(0) / "model.json")["heads"] == [11]
    from safetensors.torch import load_file

    a, b = (load_file(run.step_path(0) / "model.safetensors") for run in (first, second))
    weights = [key for key in a if key.endswith("weight") and not key.startswith("classifier.")]
    assert all(torch.allclose(a[key], b[key], atol=1e-5) for key in weights)
