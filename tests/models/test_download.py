"""Downloads by other libraries: their output goes to standard error."""

import json
import sys

import pytest
import torch
import torchvision
from network_tester import make

from faircl.errors import UserError
from faircl.models.weights import download

MOBILENET = {"name": "deeplabv3", "backbone": "mobilenet_v2", "weights": "imagenet"}


def talkative(result):
    """A loader that prints in several ways, then returns something or fails."""

    def load():
        print("Downloading: https://example.org/weights.pth")
        sys.stdout.write("100%\n")
        print("a warning", file=sys.stderr)
        if isinstance(result, Exception):
            raise result
        return result

    return load


def test_what_a_library_prints_goes_to_standard_error(capsys):
    state = {"weight": torch.ones(2)}
    before = sys.stdout
    print("result before")
    assert download("a network", talkative(state)) is state
    assert sys.stdout is before
    print("result after")
    out, err = capsys.readouterr()
    assert out == "result before\nresult after\n"
    assert err == "Downloading: https://example.org/weights.pth\n100%\na warning\n"


def test_a_download_that_fails_leaves_standard_output_alone(capsys):
    before = sys.stdout
    with pytest.raises(UserError, match=r"^Cannot download the weights of it \(OSError: no route\); .*\.$"):
        download("it", talkative(OSError("no route.")))
    assert sys.stdout is before
    out, err = capsys.readouterr()
    assert (out, err) == ("", "")


def test_an_interrupted_download_is_no_mistake_of_the_network(capsys):
    def interrupted():
        print("Downloading")
        raise KeyboardInterrupt

    before = sys.stdout
    with pytest.raises(KeyboardInterrupt):
        download("it", interrupted)
    assert sys.stdout is before
    assert capsys.readouterr().out == ""


def torchvision_says(monkeypatch):
    state = torchvision.models.mobilenet_v2().state_dict()

    def load(url, **options):
        print(f'Downloading: "{url}"')
        return state

    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", load)
    return state


def test_a_network_that_downloads_prints_nothing_among_results(monkeypatch, capsys):
    state = torchvision_says(monkeypatch)
    network = make(MOBILENET)
    network.load_pretrained()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith('Downloading: "https://')
    loaded = {value.data_ptr(): value for value in network.backbone.state_dict().values()}
    assert any(torch.equal(value, state["features.0.0.weight"]) for value in loaded.values())


def test_json_of_a_run_that_downloads_is_json(monkeypatch, cli, tiny_flags, tmp_path):
    torchvision_says(monkeypatch)
    kept = [flag for flag in tiny_flags if flag != "--set" and not flag.startswith("model.")]
    model = "model={name: deeplabv3, backbone: mobilenet_v2, weights: imagenet}"
    short = ("scenario.task=offline", "method.name=finetune", "train.epochs=0.1", "optim.lr=0.001")
    flags = [part for setting in (*kept, model, *short) for part in ("--set", setting)]
    result = cli("train", "demo", "--out", tmp_path / "run", *flags, "--json")
    assert result.code == 0, result.err
    assert len(json.loads(result.out)["runs"]) == 1
    assert "Downloading" in result.err
