"""A GPU that counts what a program launches, starts and waits for. It computes nothing."""

import collections
import contextlib
import re
from dataclasses import dataclass, field

import lattice_stand_in
import mlx.core as mx
from mlx_lattice import _ext, devices
from mlx_lattice.training import trainer


@dataclass
class Work:
    """What was launched: rows of name, bytes read, bytes written, shapes of result and inputs.

    hidden: kernels that ran although no start and no wait of the program was seen to ask for them.
    """

    rows: list = field(default_factory=list)
    starts: int = 0
    waits: int = 0
    hidden: int = 0

    def __len__(self):
        return len(self.rows)

    @property
    def bytes(self):
        return sum(read + written for _, read, written, *_ in self.rows)

    def named(self, pattern):
        return [row for row in self.rows if re.search(pattern, row[0])]

    def table(self):
        """Launches and megabytes by kind; of products the share of their tiles that is used."""
        kinds = collections.defaultdict(list)
        for row in self.rows:
            kinds[_kind(row[0])].append((row[1] + row[2], tile_use(row)))
        lines = [f"{'kernel':<34} {'launches':>8} {'MB':>9} {'tile use':>8}"]
        for kind, of in sorted(kinds.items(), key=lambda kind: -sum(b for b, _ in kind[1])):
            used = [use for _, use in of if use]
            use = f"{min(used):8.0%}" if used else ""
            lines.append(f"{kind:<34} {len(of):8} {sum(b for b, _ in of) / 1e6:9.1f} {use}")
        lines.append(f"{'all':<34} {len(self):8} {self.bytes / 1e6:9.1f}")
        return "\n".join(lines)


def _kind(name):
    name = re.sub(r"^gpu\.", "", name)
    name = re.sub(r"Compiled\w*", "Compiled", name)
    return re.sub(r"\d+x\d+(_\w+)?|_\d+$", "", name).rstrip("_")


def tile_use(row):
    """The share of the columns of tiles that are channels; None for other kernels.

    A tile of a weight gradient has channels of x and of g on its two sides.
    """
    name, _, _, shape, inputs = row
    found = re.match(r"gpu\.(conv_tiles_[a-z]+|outer_tiles)(\d+)x", name)
    if not found:
        return None
    width, use = int(found[2]), 1.0
    sides = [shape[-1]] if found[1] != "outer_tiles" else [inputs[0][-1], inputs[1][-1]]
    for side in sides:
        use *= side / (-(-side // width) * width)
    return use


# What reads values of an array, and so waits for them.
READERS = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__array__")


@contextlib.contextmanager
def counting(backend="metal"):
    """Counts inside of the block; everything that is evaluated goes into the work."""
    work = Work()
    real = {"eval": mx.eval, "async_eval": mx.async_eval, "start": _ext.start}

    def look(*trees):
        rows = lattice_stand_in.work_of(devices.arrays_of(list(trees)))
        work.rows += rows
        return bool(rows)

    def wait(*trees):
        look(*trees)
        work.waits += 1
        real["eval"](*trees)

    def start(arrays):
        look(arrays)
        work.starts += 1
        real["start"](arrays)

    def start_on_gpu(arrays):
        rows = lattice_stand_in.work_of(arrays)
        try:
            real["start"](arrays)
        except ValueError:  # inside a gradient
            return False
        work.rows += rows
        work.starts += 1
        return True

    def reader(read):
        def counted(array, *args):
            if not lattice_stand_in.is_ready(array):
                look(array)
                work.waits += 1
            return read(array, *args)

        return counted

    lattice_stand_in.fill_counting(backend)
    before = lattice_stand_in.kernels_run()
    patches = [
        (mx, "eval", wait),
        (devices, "start_on_gpu", start_on_gpu),
        (trainer, "start", start),
    ]
    patches += [(mx.array, name, reader(getattr(mx.array, name))) for name in READERS]
    old = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, new in patches:
        setattr(owner, name, new)
    try:
        yield work
    finally:
        for owner, name, value in old:
            setattr(owner, name, value)
        mx.synchronize()
        seen = sum(row[0].startswith("gpu.") for row in work.rows)
        work.hidden = lattice_stand_in.kernels_run() - before - seen
        lattice_stand_in.clear()
