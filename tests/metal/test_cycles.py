"""What a step of a tile costs besides its products: counted, not timed (cycles.py)."""

import shutil

import mlx.core as mx
import pytest
from metal import cycles

pytestmark = [
    pytest.mark.usefixtures("needs_host"),
    pytest.mark.skipif(
        not shutil.which("opt-19"), reason="not installed: opt-19 (Debian: llvm-19)"
    ),
]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_staging_of_16_channels(dtype):
    """Of a tile of 64 columns with 64 input channels: an offset has four times 16 of them."""
    found = cycles.per_16_channels(dtype)
    assert 0 < found["staging"] + found["per offset"] / 4 <= 80
    assert found["barriers"] == 1


def test_a_scalar_load_is_found():
    """A thread that moves one channel at a time costs several times as much."""
    made = cycles.launch()
    text = made.text.replace("if (kWhole && n > 0)", "if (false)").replace(
        "!kWhole && j < n", "j < n"
    )
    assert text != made.text
    found = cycles.count(made.name, text, [cycles.FETCH])
    assert found[cycles.FETCH] / 2 > 100
