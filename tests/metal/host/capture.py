"""Any kernel text on the host.

MLX writes the signature, as it does for the library's own launches.
"""

import mlx.core as mx

from .host import MetalHost
from .launch import of_metal


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

    return of_metal(call, list(inputs.values()), list(outputs.values()), init_value)


def run(source, inputs, outputs, grid, group=64, host=None, **more):
    """The outputs of the kernel, on `host` or on a fast one."""
    launch = capture(source, inputs, outputs, grid, group, **more)
    arrays = [mx.contiguous(mx.array(a)) for a in inputs.values()]
    mx.eval(arrays)
    return (host or MetalHost()).run(launch, arrays)
