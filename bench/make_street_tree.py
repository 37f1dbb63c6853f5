#!/usr/bin/env python3
"""Made-up streets as a SemanticKITTI tree.

Scans of the demo's ray caster, labels with the ids of the data set.

    python bench/make_street_tree.py FOLDER --scans 2000

The layout is exactly that of the download: sequences/00/velodyne/000000.bin, labels/000000.label,
poses.txt, calib.txt. Sequences 00 to 10 share the scans; each sequence is a run of streets.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

IDS = (40, 50, 10, 80, 70, 30)  # ground, building, car, pole, vegetation, pedestrian
SEQUENCES = 11


def write_street(folder: str, sequence: int, numbers: range, thin: int) -> None:
    """The scans `numbers` of one street: each is turned, thinned and noised by itself."""
    from mlx_lattice.samples import streets

    points, labels = streets.street(1000 * sequence + numbers[0])
    base = Path(folder) / "sequences" / f"{sequence:02}"
    for number in numbers:
        rng = np.random.default_rng([sequence, number])
        kept = np.sort(rng.permutation(len(points))[: len(points) // thin])
        angle = rng.uniform(-np.pi, np.pi)
        c, s = np.cos(angle), np.sin(angle)
        turned = points[kept] @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        turned += rng.normal(0, 0.005, turned.shape)
        rows = np.column_stack([turned, rng.random(len(kept))]).astype("<f4")
        rows.tofile(base / f"velodyne/{number:06}.bin")
        np.asarray(IDS, "<u4")[labels[kept]].tofile(base / f"labels/{number:06}.label")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--scans", type=int, default=2000)
    parser.add_argument("--thin", type=int, default=1, help="keep one of so many points")
    parser.add_argument("--turns", type=int, default=1, help="scans of one street")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    counts = [len(range(s, arguments.scans, SEQUENCES)) for s in range(SEQUENCES)]
    for sequence, count in enumerate(counts):
        base = Path(arguments.folder) / "sequences" / f"{sequence:02}"
        for name in ("velodyne", "labels"):
            (base / name).mkdir(parents=True, exist_ok=True)
        one = "1 0 0 0 0 1 0 0 0 0 1 0"
        (base / "poses.txt").write_text(f"{one}\n" * count)
        (base / "calib.txt").write_text(f"Tr: {one}\n")
    with ProcessPoolExecutor(arguments.processes) as pool:
        made = [
            pool.submit(
                write_street,
                arguments.folder,
                sequence,
                range(first, min(first + arguments.turns, count)),
                arguments.thin,
            )
            for sequence, count in enumerate(counts)
            for first in range(0, count, arguments.turns)
        ]
        for one_made in made:
            one_made.result()
    print(f"{arguments.scans} scans in {arguments.folder}")


if __name__ == "__main__":
    main()
