"""Every test begins with the same random numbers."""

import mlx.core as mx
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(0)
    np.random.seed(0)
