"""Peak memory of a point convolution, forward and backward.

Nothing of the size edges x channels is ever made.
"""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Prints in bytes: features of the points, features of the edges, the most that MLX allocated. Then
# the largest growth of the process, with the buffers of the library. Last the same growth with the
# features of all edges in memory, to show that such an array would be seen. Linux forgets the peak
# of building the rulebook when 5 is written to clear_refs. Elsewhere growth counts from that peak.
PROGRAM = """
import json, os, re, resource, sys
import mlx.core as mx
import numpy as np
from mlx_lattice import points

n, c, spread = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
dtype = getattr(mx, sys.argv[4])
linux = os.path.exists("/proc/self/clear_refs")

def resident(what):
    if linux:
        return 1024 * int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

p = np.random.default_rng(0).uniform(0, spread, (n, 3)).astype(np.float32)
set_ = points.PointSet(mx.array(p), grid=1.0)
book = set_.rulebook()
conv = points.PointConv3d(c, c)
conv.set_dtype(dtype)
x = mx.random.normal((n, c)).astype(dtype)
mx.eval(conv.parameters(), x)
small = points.PointSet(mx.array(p[:50]), grid=1.0)
mx.eval(mx.grad(lambda a: conv(a, small)[0].sum())(x[:50]))  # code and threads are loaded
mx.clear_cache()
if linux:
    open("/proc/self/clear_refs", "w").write("5")
before, held = resident("VmRSS"), mx.get_active_memory()
mx.reset_peak_memory()

def loss(a, w):
    conv.weight = w
    return conv(a, book).astype(mx.float32).square().sum()

mx.eval(mx.value_and_grad(loss, argnums=(0, 1))(x, conv.weight))
out = {"points": x.nbytes, "edges": len(book) * c * x.itemsize}
out |= {"mlx": mx.get_peak_memory() - held, "process": resident("VmHWM") - before}
rows = x[book.triplets()[1]]
mx.eval(rows)
out["with edges"] = resident("VmHWM") - before
print(json.dumps(out))
"""


def measure(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is for Unix")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_array_of_edges_and_channels(dtype):
    found = measure(10000, 64, 10.0, dtype)
    assert found["edges"] > 30 * found["points"]
    assert found["with edges"] > 0.9 * found["edges"]  # such an array would be seen
    assert found["process"] < 0.5 * found["edges"] and found["mlx"] < 12 * found["points"], found


if __name__ == "__main__":
    print(measure(*sys.argv[1:]))
