"""Helpers of these tests explain their failures as tests do."""

import pytest

pytest.register_assert_rewrite("network_tester")
