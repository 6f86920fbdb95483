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
