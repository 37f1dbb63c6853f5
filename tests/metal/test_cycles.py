"""What a step of a tile costs besides its products: counted, not timed (cycles.py)."""

import re
import shutil

import mlx.core as mx
import pytest
from metal import cycles
from metal.host.far import record
from mlx_lattice import ops

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


def test_accesses_of_attention():
    """Of 32 keys and 32 channels, in rounds of four: 104 loads for 256 products of a lane."""
    rows, offsets = mx.zeros((70, 2, 32)), mx.array([0, 40, 70])
    made = record(lambda: ops.attention(rows, rows, rows, offsets), "attention_tile")
    calls = ["add_products(logit,", "add_columns<kParts>(sum"]
    found = cycles.inlined(made.name, made.text, calls)
    loads = [line for call in calls for line in found[call] if re.search(r" = load ", line)]
    assert 32 // 4 * len(loads) == 104
    assert sum("<4 x float>" in line for line in loads) == 9
