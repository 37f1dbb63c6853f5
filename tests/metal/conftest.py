"""Where kernels of these tests run: on the host, which needs clang.

On a Mac the routes also run on the GPU itself.
"""

import mlx.core as mx
import pytest
from metal.host import missing


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(0)


@pytest.fixture(scope="session")
def needs_host():
    reason = missing()
    if reason:
        pytest.skip(reason)


def pytest_collection_modifyitems(items):
    """Compiling the kernels for the emulation takes minutes."""
    for item in items:
        if "metal" in item.path.parts:
            item.add_marker(pytest.mark.slow)
