"""Any kernel text on the host.

MLX writes the signature, as it does for the library's own launches.
"""

from dataclasses import dataclass

import mlx.core as mx

from .host import MetalHost


@dataclass
class Launch:
    """What the library hands a host, made here from a header and a body."""

    name: str
    text: str
    grid: tuple
    threadgroup: tuple
    shape_info: list
    outputs: list
    init_value: float | None = None


def capture(
    source, inputs, outputs, grid, group=64, header="", template=(), init_value=None, atomic=False
):
    """inputs: name -> array; outputs: name -> (shape, dtype); grid and group.

    Threads along x, or triples.
    """
    grid, group = ((n, 1, 1) if isinstance(n, int) else n for n in (grid, group))
    kernel = mx.fast.metal_kernel(
        name="test",
        input_names=list(inputs),
        output_names=list(outputs),
        header=header,
        source=source,
        atomic_outputs=atomic,
    )
    shapes, dtypes = zip(*outputs.values())
    found = {}

    def read(event):
        if event["type"] == "primitive":
            found["arguments"] = event["arguments"]

    def call(*arrays):
        return kernel(
            inputs=list(arrays),
            template=list(template),
            grid=grid,
            threadgroup=group,
            output_shapes=shapes,
            output_dtypes=dtypes,
            init_value=init_value,
            stream=mx.gpu,
        )

    mx.export_function(read, call, *inputs.values())
    a = found["arguments"]
    return Launch(
        a[0], a[1], tuple(a[2:5]), tuple(a[5:8]), a[8], list(outputs.values()), init_value
    )


def run(source, inputs, outputs, grid, group=64, host=None, **more):
    """The outputs of the kernel, on `host` or on a fast one."""
    launch = capture(source, inputs, outputs, grid, group, **more)
    arrays = [mx.contiguous(mx.array(a)) for a in inputs.values()]
    mx.eval(arrays)
    return (host or MetalHost()).run(launch, arrays)
