"""Launches every kernel of the library once or more, so that its text can be collected."""

import mlx.core as mx
from mlx_lattice import _ext, ops


def launch_all(backend):
    """The cases of the self test for all routes, and the kernels that stand beside the table."""
    _ext.selftest_rows("gpu", f"{backend}.")
    for n in (5, 300):  # fewer than 8 values lie in another address space on Metal
        values = [mx.ones(n) for _ in range(4)]
        mx.eval(ops.adamw_step(*values, mx.ones(3)), ops.adamw_step(*values, mx.ones(5)))
        mx.eval(_ext.running_statistics(values, 0.1, 1.0))
