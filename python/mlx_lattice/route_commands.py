"""Commands about routes and devices: `routes` and `devices` list them, `selftest` runs each route against the oracle."""

import mlx.core as mx

from . import SparseTensor, ops, routes, selftest, supported_on


def add_command(commands):
    table = commands.add_parser("routes", help="lists every way to evaluate an operation")
    table.add_argument("--markdown", action="store_true", help="as docs/routes.md")
    table.set_defaults(run=_routes)
    where = commands.add_parser("devices", help="probes which operations run on which device")
    where.set_defaults(run=_devices)
    test = commands.add_parser("selftest", help="checks every route against a float64 oracle on this machine")
    test.set_defaults(run=_selftest)


def markdown():
    """The text of docs/routes.md."""
    lines = [
        "# Routes",
        "",
        "A route is one way to evaluate an operation. Rows are tried in this order, on the call's device; the first that fits",
        "is taken. `LATTICE_ROUTE=\"conv=cpu.reference\"` forces one, `mlx_lattice.explain(fn, *args)` tells which was chosen and why.",
        "",
        "This page is made by `python -m mlx_lattice routes --markdown`; a test compares it with the table in the library.",
        "",
        "| operation | device | route | fits |",
        "|---|---|---|---|",
    ]
    lines += [f"| {r.operation} | {r.device} | `{r.name}` | {r.predicate} |" for r in routes()]
    return "\n".join(lines) + "\n"


def _routes(arguments):
    if arguments.markdown:
        print(markdown(), end="")
        return
    for r in routes():
        print(f"{r.operation:10} {r.name:16} {r.predicate}")


def _samples():
    """One small call of every operation on features, at stride 2 so that transposed ones divide."""
    x = SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]], mx.int32), mx.ones((2, 4)), stride=2)
    w27, w8, w1 = mx.ones((27, 4, 4)), mx.ones((8, 4, 4)), mx.ones((4, 4))
    calls = {name: (x, w8) for name in ("conv_transpose3d", "generative_conv_transpose3d")}
    calls |= {f"normalized_{name}": args for name, args in calls.items()}
    calls |= {name: (x, w27) for name in ("conv3d", "subm_conv3d", "normalized_subm_conv3d")}
    calls |= {"linear": (x, w1), "linear_features": (x.feats, w1)}
    return {name: calls[name] for name in sorted(calls)}


def _devices(_arguments):
    devices = [d for d in (mx.cpu, mx.gpu) if mx.is_available(d)]
    print("| operation | " + " | ".join(d.name for d in devices) + " |")
    print("|---" * (len(devices) + 1) + "|")
    for name, args in _samples().items():
        answers = ("yes" if supported_on(d, getattr(ops, name), *args) else "no" for d in devices)
        print(f"| `{name}` | " + " | ".join(answers) + " |")


def _selftest(_arguments):
    report = selftest()
    print(report)
    return 0 if report.ok else 1
