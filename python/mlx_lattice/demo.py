"""python -m mlx_lattice demo: a LiDAR sweep becomes voxels, relations and a picture.

1. One turn of a 64-beam scanner over a street of boxes, walls and poles (ray casting in NumPy).
2. voxel = floor(point / size); the library keeps the distinct rows.
3. A 3x3x3 submanifold relation and a 2x2x2 relation of stride 2, with their views.
4. A table of rows, edges, coverage, bytes and times, and a PNG of the voxels.
"""

import time

import mlx.core as mx

from . import backend_info, core, ops
from .core import SparseTensor


def add_command(commands):
    parser = commands.add_parser("demo", help="voxelizes a LiDAR sweep, builds relations, draws a picture")
    parser.add_argument("--voxel-size", type=float, default=0.2, metavar="METRES", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="which street; default %(default)s")
    parser.add_argument("--output", default="mlx_lattice_demo.png", metavar="PNG", help="default %(default)s")
    parser.set_defaults(run=run)


def run(arguments):
    if arguments.voxel_size <= 0:
        raise ValueError(f"--voxel-size must be positive, found {arguments.voxel_size}")
    try:
        import numpy as np

        from . import _demo_scene
        from .viewer.raster import cubes
    except ImportError as error:
        raise ValueError(f"{error}; install what the demo needs: pip install 'mlx-lattice[demo]'") from None
    points = _demo_scene.sweep(arguments.seed)
    table = _Table()

    voxels = np.zeros((len(points), 4), np.int32)
    voxels[:, 1:] = np.floor(points / arguments.voxel_size)
    coords = table.timed("distinct voxels", lambda: ops.downsample_coords(mx.array(voxels), 1))
    x = SparseTensor(coords, mx.array(np.array(coords[:, 3:], np.float32)))
    same = table.timed("submanifold 3x3x3", lambda: ops.submanifold_kernel_relation(x, 3))
    table.timed("  its edge arrays", lambda: (same.edges, same)[1])
    half = table.timed("strided 2x2x2", lambda: ops.kernel_relation(x, 2, 2))
    low = SparseTensor(half.out_coords, mx.zeros((half.n_out, 1)), 2, coord_key=half.out_key, coord_manager=x.coord_manager)
    table.timed("  back to the voxels", lambda: ops.target_transposed_kernel_relation(low, x, 2, 2))
    table.timed("  asked again", lambda: ops.kernel_relation(x, 2, 2))

    info = backend_info()
    print(f"{len(points):,} points of one sweep, voxels of {arguments.voxel_size} m; "
          f"{info['simd']}, {core.thread_count()} threads, MLX {info['mlx']['running']}")
    print(table)
    cubes(np.array(coords)[:, 1:], arguments.voxel_size, arguments.output)
    print(f"picture: {arguments.output}")


class _Table:
    """Lines of one step each: what it made and how long it took."""

    HEADER = ("step", "rows in", "rows out", "edges", "per row", "unused in", "empty out", "bytes", "ms")

    def __init__(self):
        self.lines = [self.HEADER]

    def timed(self, name, make):
        """Calls make(), which gives coordinates or a relation, and adds a line."""
        begin = time.perf_counter()
        made = make()
        spent = f"{(time.perf_counter() - begin) * 1e3:.2f}"
        if isinstance(made, mx.array):
            cells = ("", f"{len(made):,}", "", "", "", "")
        else:
            c = made.coverage()
            cells = (f"{made.n_in:,}", f"{made.n_out:,}", f"{made.edge_count:,}",
                     f"{made.edge_count / max(made.n_out, 1):.1f}", f"{c.unused_inputs:,}", f"{c.empty_outputs:,}")
        self.lines.append((name, *cells, f"{made.nbytes:,}", spent))
        return made

    def __str__(self):
        widths = [max(len(line[i]) for line in self.lines) for i in range(len(self.HEADER))]
        rule = "  ".join("-" * w for w in widths)
        rows = ["  ".join(v.ljust(w) if i == 0 else v.rjust(w) for i, (v, w) in enumerate(zip(line, widths)))
                for line in self.lines]
        return "\n".join([rows[0], rule, *rows[1:]])
