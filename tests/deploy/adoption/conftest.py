"""Networks of other libraries on disk."""

import pytest
import torch
from foreign_networks import make_deeplab, make_segformer


@pytest.fixture(scope="session")
def segformer(tmp_path_factory):
    """A folder, and the network in it."""
    folder = tmp_path_factory.mktemp("hub") / "segformer"
    return folder, make_segformer(folder)


@pytest.fixture(scope="session")
def deeplab(tmp_path_factory):
    """A file, and the network in it: MobileNetV3, 4 classes, an auxiliary classifier."""
    path = tmp_path_factory.mktemp("torchvision") / "deeplab.pth"
    made = make_deeplab("mobilenet_v3_large", 4, aux=True)
    torch.save(made.state_dict(), path)
    return path, made


@pytest.fixture
def page():
    """Asked for by tests that read the report."""


@pytest.fixture(autouse=True)
def _no_report(request, monkeypatch):
    """Leave the report out elsewhere: drawing its plots takes longer than the rest."""
    if "page" not in request.fixturenames:
        monkeypatch.setattr("faircl.deploy.adoption.run_files.write_run_page", lambda path: None)
