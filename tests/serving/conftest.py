"""A network without weights, and the application around it."""

from __future__ import annotations

import numpy as np
import pytest

from faircl.data.images import RGB
from faircl.serving.limits import Limits
from faircl.serving.networks import Choice, Networks, Segmented

SCRIPT = "<script>alert(1)</script>"


class RedNetwork:
    """Finds a class where the image is red; the unknown score is green."""

    background, reading, score = 0, RGB, "entropy"

    def __init__(self) -> None:
        self.names, self.colours = {0: "background", 1: SCRIPT}, {0: (0, 0, 0), 1: (200, 10, 10)}
        self.tiles: list[int | None] = []

    def segment(self, image, tile):
        self.tiles.append(tile)
        return Segmented((image[..., 0] > 127).astype(np.uint8), image[..., 1].astype(np.float32) / 255)


@pytest.fixture
def network():
    return RedNetwork()


@pytest.fixture
def client(network):
    from starlette.testclient import TestClient

    from faircl.serving.app import make_app
    from faircl.serving.page import make_page

    choices = [Choice(0, 0, "step 0: 2 classes"), Choice(1, 1, f"version 1: renamed car to {SCRIPT}")]
    limits = Limits(max_bytes=200_000, max_pixels=1_000_000)
    app = make_app(
        Networks(choices, lambda choice: network), make_page("my <run>", choices, 1, limits), limits, "127.0.0.1"
    )
    origin = "http://127.0.0.1:8765"
    return TestClient(app, base_url=origin, headers={"Origin": origin}, raise_server_exceptions=False)
