"""Commands about routes and devices.

`routes` and `devices` list them, `explain` reports which route runs, `selftest` checks all routes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import textwrap
from typing import TypeAlias

import mlx.core as mx

from .. import SparseTensor, explain, ops, routes, selftest, supported_on
from ..models._integer_checksum import EXPECTED, checksums
from ..programs import Program
from ..training.progress import Progress
from .options import Commands, add_device, say_next
from .outputs import check_output
from .selftest_report import write_report

Sample: TypeAlias = tuple[SparseTensor | mx.array, mx.array]  # arguments of an operation

_UP = ("conv_transpose3d", "generative_conv_transpose3d")
_DOWN = ("conv3d", "subm_conv3d", "normalized_subm_conv3d")
_OPERATIONS = sorted(
    [*_UP, *(f"normalized_{name}" for name in _UP), *_DOWN, "linear", "linear_features"]
)


def add_command(commands: Commands) -> None:
    table = commands.add_parser("routes", help="lists every way to evaluate an operation")
    table.add_argument("--markdown", action="store_true", help="as docs/routes.md")
    table.add_argument(
        "--all", action="store_true", help="also routes of devices that are not here"
    )
    table.set_defaults(run=_routes)
    where = commands.add_parser("devices", help="probes which operations run on which device")
    where.set_defaults(run=_devices)
    why = commands.add_parser(
        "explain",
        help="tells which route an operation takes, and why",
        epilog="example: mlx-lattice explain subm_conv3d --channels 64 32 --dtype float16",
    )
    why.add_argument(
        "operation", choices=_OPERATIONS, metavar="operation", help=", ".join(_OPERATIONS)
    )
    why.add_argument("--channels", type=int, nargs=2, default=(32, 32), metavar=("IN", "OUT"))
    why.add_argument(
        "--side",
        type=int,
        default=20,
        help="voxels along an edge of the block that stands for a scan",
    )
    why.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    why.set_defaults(run=_explain)
    test = commands.add_parser(
        "selftest", help="checks every route against a float64 oracle on this machine"
    )
    test.add_argument(
        "program", nargs="?", help="a program with an example, which is run instead of the routes"
    )
    add_device(test, text="only routes of this device")
    test.add_argument("--quick", action="store_true", help="few cases per route: seconds")
    whole = "a network in exact integers, by every kernel; prints a number that all machines share"
    test.add_argument("--integer", action="store_true", help=whole)
    test.add_argument(
        "--report",
        metavar="FILE",
        help="writes machine, versions and every route to FILE; JSON if it ends so",
    )
    test.set_defaults(run=_selftest)


def markdown() -> str:
    """The text of docs/routes.md."""
    lines = [
        "# Routes",
        "",
        "A route is one way to evaluate an operation. The library tries the rows in this order,",
        "on the device of the call, and takes the first row that fits.",
        '`LATTICE_ROUTE="conv=cpu.reference"` forces a route. `mlx_lattice.explain(fn, *args)`',
        "tells which route was chosen and why.",
        "",
        "`python -m mlx_lattice routes --markdown` makes this page; a test compares the page with",
        "the table in the library.",
        "",
        "Rows alone: whether a row of the result has the same bits whatever other rows there are.",
        "A [tiled run](larger-than-memory.md) takes only such routes.",
        "",
        "| operation | device | route | rows alone | fits |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.operation} | {r.device} | `{r.name}` | {'yes' if r.row_independent else 'no'} "
        f"| {r.predicate} |"
        for r in routes()
    ]
    return "\n".join(lines) + "\n"


def _routes(arguments: argparse.Namespace) -> None:
    if arguments.markdown:
        print(markdown(), end="")
        return
    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 120))
    names = max(len(r.name) for r in routes())
    here = {"cpu"} | ({"gpu"} if mx.is_available(mx.gpu) else set())
    shown = [r for r in routes() if arguments.all or str(r.device) in here]
    for operation, rows in itertools.groupby(shown, key=lambda r: r.operation):
        print(operation)
        for r in rows:
            head = f"  {r.name:{names}}  "
            text = textwrap.wrap(r.predicate, width - len(head), break_on_hyphens=False) or [""]
            print(head + ("\n" + " " * len(head)).join(text))
    hidden = len(routes()) - len(shown)
    if hidden:
        print(f"\n{hidden} routes of devices that are not here: mlx-lattice routes --all")
    say_next("explain", "subm_conv3d")


def _samples(
    side: int = 2, c_in: int = 4, c_out: int = 4, dtype: mx.Dtype = mx.float32
) -> dict[str, Sample]:
    """One call per operation on the features of a block of voxels.

    The stride is 2, so that transposed operations can divide it.
    """
    axis = mx.arange(side)
    xyz = mx.stack([a.reshape(-1) for a in mx.meshgrid(axis, axis, axis, indexing="ij")], axis=1)
    coords = mx.concatenate([mx.zeros((side**3, 1), mx.int32), xyz.astype(mx.int32)], axis=1)
    x = SparseTensor(coords, mx.ones((side**3, c_in), dtype), stride=2)
    w27, w8, w1 = (
        mx.ones(shape, dtype) for shape in ((27, c_in, c_out), (8, c_in, c_out), (c_out, c_in))
    )
    calls: dict[str, Sample] = {"linear": (x, w1), "linear_features": (x.feats, w1)}
    calls |= dict.fromkeys(_DOWN, (x, w27))
    return {name: calls.get(name, (x, w8)) for name in _OPERATIONS}


def _explain(arguments: argparse.Namespace) -> None:
    if min(arguments.channels) < 1 or not 1 <= arguments.side <= 200:
        raise ValueError("channels must be positive, side in 1..200")
    c_in, c_out = arguments.channels
    calls = _samples(arguments.side, c_in, c_out, getattr(mx, arguments.dtype))
    print(explain(getattr(ops, arguments.operation), *calls[arguments.operation]))
    say_next("bench", "conv", "--channels", c_in)


def _devices(_arguments: argparse.Namespace) -> None:
    devices = [d for d in (mx.cpu, mx.gpu) if mx.is_available(d)]
    print("| operation | " + " | ".join(d.name for d in devices) + " |")
    print("|---" * (len(devices) + 1) + "|")
    for name, args in _samples().items():
        answers = ("yes" if supported_on(d, getattr(ops, name), *args) else "no" for d in devices)
        print(f"| `{name}` | " + " | ".join(answers) + " |")
    say_next("routes", "--all")


def _selftest_program(path: str) -> int:
    found = Program.load(path).selftest()
    if found is None:
        print(f"{path} has no example; export it again with --example")
        return 1
    print(f"{path}: the example gives " + ("the stored result" if found else "ANOTHER RESULT"))
    return 0 if found else 1


def _selftest_integer() -> int:
    found = checksums()
    width = max(len(row) for row in found)
    for row, value in found.items():
        print(f"{row:{width}}  {value}  {'' if value == EXPECTED else 'DIFFERS'}".rstrip())
    equal = set(found.values()) == {EXPECTED}
    print(f"integers: {EXPECTED}" if equal else f"integers: expected {EXPECTED} everywhere")
    return 0 if equal else 1


def _selftest(arguments: argparse.Namespace) -> int:
    if arguments.program:
        return _selftest_program(arguments.program)
    if arguments.integer:
        return _selftest_integer()
    if arguments.report:
        check_output(arguments.report)
    with Progress("selftest", 1, "test of all routes") as bar, bar.step("") as tell:
        report = selftest(arguments.device, arguments.quick, tell)
    print(report)
    if arguments.report:
        write_report(report, arguments.report)
        print(f"wrote {arguments.report}")
    if report.ok:
        say_next(*(("selftest",) if arguments.quick else ("bench", "conv")))
    else:
        print("next: report the failed rows, with the file of `mlx-lattice selftest --report FILE`")
    return 0 if report.ok else 1
