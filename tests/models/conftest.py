"""Register assertion rewriting for the helpers of these tests."""

import pytest

pytest.register_assert_rewrite("network_tester", "weight_sources")

from weight_sources import dinos, mobilenet, resnet, segformer  # noqa: E402, F401 - fixtures
