"""Every test begins with the same random numbers; no example of hypothesis has a deadline."""

import hypothesis
import mlx.core as mx
import numpy as np
import pytest

# A busy machine is no failure.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(0)
    np.random.seed(0)
