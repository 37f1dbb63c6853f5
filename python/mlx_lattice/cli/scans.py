"""Command `scans`: small synthetic scans with labels, to try the other commands on."""

from __future__ import annotations

import argparse

from .. import samples
from .options import Commands, add_parser


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "scans",
        "writes small labeled scans to try the other commands on",
        "Writes synthetic scans of a yard of 8 m: ground, walls, boxes and balls, with "
        "labels 0 to 3.",
        "examples:\n  mlx-lattice scans yard\n  mlx-lattice scans yard --count 20",
    )
    parser.add_argument("folder", help="where the PLY files go; the folder is made")
    parser.add_argument(
        "--count", type=int, default=5, metavar="N", help="number of scans; default %(default)s"
    )
    parser.set_defaults(run=_scans)


def _scans(arguments: argparse.Namespace) -> None:
    paths = samples.write_scans(arguments.folder, arguments.count)
    print(f"wrote {len(paths)} scans: {paths[0]} ... {paths[-1]}")
    print(f"classes: {', '.join(f'{i} {name}' for i, name in enumerate(samples.CLASSES))}")
    names = ",".join(samples.CLASSES)
    print(
        f"next: mlx-lattice train {arguments.folder} --voxel 0.2 --epochs 10 --classes {names} "
        "--output run"
    )
