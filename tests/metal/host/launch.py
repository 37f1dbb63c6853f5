"""What MLX would hand to a GPU, and a GPU that is not there.

lattice_stand_in is built with the C++ tests; it fills the one seam of the library for tests
(lattice/graph/gpu_call.h).
"""

import contextlib
from dataclasses import dataclass, field

import lattice_stand_in
import mlx.core as mx


@dataclass
class Launch:
    """One launch. Metal: `text` is all that is compiled behind MLX's header. CUDA: the header."""

    name: str
    text: str
    grid: tuple
    threadgroup: tuple
    shape_info: list  # of each input: whether shape, strides, ndim are arguments too
    outputs: list  # shape and dtype of each
    init_value: float | None = None
    # Of CUDA, whose text MLX writes only where there is CUDA.
    source: str = ""
    input_names: list = field(default_factory=list)
    output_names: list = field(default_factory=list)
    template_args: list = field(default_factory=list)


def of_metal(call, inputs, outputs, init_value):
    """The node that call(*inputs) makes, taken apart: MLX builds it on any machine for export."""
    found = {}

    def read(event):
        if event["type"] == "primitive":
            found["arguments"] = event["arguments"]

    mx.export_function(read, call, *inputs)
    a = found["arguments"]
    return Launch(a[0], a[1], tuple(a[2:5]), tuple(a[5:8]), a[8], outputs, init_value)


def of_cuda(call):
    """What MLX would get: it builds no node for CUDA without CUDA."""
    words = ("_shape", "_strides", "_ndim")
    return Launch(
        call.name,
        call.cuda_header,
        tuple(call.grid),
        tuple(call.threadgroup),
        [tuple(name + word in call.source for word in words) for name in call.input_names],
        call.outputs,
        call.init_value,
        call.source,
        call.input_names,
        call.output_names,
        call.template_args,
    )


@contextlib.contextmanager
def standing_in(host=None, backend="metal", tier=None, probing=None, tf32=False):
    """host(launch, inputs) -> outputs runs the kernels inside the block.

    The tier is what the machine says of the tensor API. Kernels are probed before their first use
    if `probing` says so. With `tf32` MLX's products round float32 to TF32, as some GPUs do.
    """

    def run(call, inputs, launch):
        mx.eval(inputs)
        if backend == "cuda":
            return host(of_cuda(call), inputs)
        made = of_metal(lambda *arrays: launch(arrays), inputs, call.outputs, call.init_value)
        return host(made, inputs)

    lattice_stand_in.fill(run if host else None, backend, tier, probing, tf32)
    try:
        yield
    finally:
        lattice_stand_in.clear()
