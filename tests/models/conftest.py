"""Helpers of these tests explain their failures as tests do."""

import pytest

pytest.register_assert_rewrite("network_tester", "weight_sources")

from weight_sources import dinos, mobilenet, resnet, segformer  # noqa: E402, F401 - fixtures
