"""Downloads that fail: nothing is printed but the error, and nothing is tried again."""

import io
import logging
import sys
import time
import warnings

import huggingface_hub
import pytest

from faircl.errors import UserError
from faircl.hub import hub_or_cache, quiet_download
from faircl.models.weights import download
from faircl.registry import MODELS


class Refused:
    """A session of the hub's client that counts and refuses all requests."""

    def __init__(self):
        self.requests = 0

    def head(self, *args, **options):
        self.requests += 1
        raise OSError("connection refused")


@pytest.fixture
def refused(monkeypatch, tmp_path):
    """No network, and an empty cache; a library that waits to try again fails the test."""
    session = Refused()
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: session)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("tried again"))
    return session


@pytest.mark.parametrize(
    "config",
    [
        {"name": "segformer", "variant": "b0", "weights": "imagenet"},
        {"name": "timm", "backbone": "resnet18", "weights": "pretrained"},
        {"name": "vit", "backbone": "vit_small_patch14_dinov2", "weights": "pretrained"},
    ],
    ids=lambda config: config["name"],
)
def test_weights_of_the_hub(config, refused, capfd):
    network = MODELS.get(config["name"])(MODELS.parse_config(config))
    capfd.readouterr()
    with pytest.raises(UserError, match=r"cannot be reached \(connection refused\) and its cache holds no usable copy"):
        network.load_pretrained()
    assert capfd.readouterr() == ("", "")
    assert refused.requests == 1
    assert huggingface_hub.constants.HF_HUB_OFFLINE is False


def test_a_data_set_of_the_hub(refused, cli, tmp_path):
    library = pytest.importorskip("datasets")
    recipe = tmp_path / "hub.yaml"
    recipe.write_text("data: {name: huggingface, path: nobody/nothing}\nmodel: small\nmethod: joint\n")
    before = library.config.HF_HUB_OFFLINE
    result = cli("train", recipe, "--out", tmp_path / "run")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "Cannot open the Hugging Face data set nobody/nothing: " in result.err
    assert "cannot be reached (connection refused)" in result.err
    assert before == library.config.HF_HUB_OFFLINE


def test_what_the_cache_holds_is_loaded_without_a_network(refused):
    with hub_or_cache():
        assert huggingface_hub.constants.is_offline_mode()
    assert not huggingface_hub.constants.is_offline_mode()


def test_a_hub_that_answers_is_used(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: type("Session", (), {"head": lambda *a, **o: None})())
    with hub_or_cache():
        assert not huggingface_hub.constants.is_offline_mode()
    with pytest.raises(KeyError), hub_or_cache():
        raise KeyError  # with a network, errors are the library's own


def test_loggers_and_warnings_are_silent_and_come_back(capfd):
    logger = logging.getLogger("huggingface_hub.utils._http")
    logger.parent.addHandler(handler := logging.StreamHandler(sys.stderr))

    def load():
        logger.warning("Retrying in 1s")
        warnings.warn("slow", stacklevel=1)
        raise OSError("no route")

    try:
        level = logger.parent.level
        with pytest.raises(UserError, match="no route"):
            download("it", load)
        assert capfd.readouterr().err == ""
        assert logger.parent.level == level
    finally:
        logger.parent.removeHandler(handler)


def test_a_progress_bar_is_shown_as_it_moves(monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    with quiet_download():
        print("Downloading")
        assert shown.getvalue() == ""
        print("\r 50%", end="", file=sys.stderr)
        assert shown.getvalue() == "Downloading\n\r 50%"
