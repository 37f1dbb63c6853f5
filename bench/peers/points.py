#!/usr/bin/env python3
"""Farthest points, normals, outliers and ICP beside Open3D, in turns, one thread, CPU seconds.

    python bench/peers/points.py --peer PYTHON     PYTHON: of an environment that has open3d

Both sides read the same points: one turn of a scanner over a street. Each round starts one process
per side; the best CPU time of the rounds is printed. Open3D is for this benchmark only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import json, sys, time
import numpy as np
import mlx.core as mx
from mlx_lattice import core, ops, points as tools
core.set_thread_count(1)
p = np.load(sys.argv[1]); x = mx.array(p); moved = np.load(sys.argv[2]); normals = None
def timed(f):
    best = 1e9
    for _ in range(3):
        begin = time.process_time(); f(); best = min(best, time.process_time() - begin)
    return best
out = {}
out["farthest 16384"] = timed(lambda: mx.eval(ops.farthest_point_sample(x, 16384)))
out["normals k=16"] = timed(lambda: mx.eval(ops.estimate_normals(x, k=16)))
out["statistical outliers k=16"] = timed(lambda: tools.statistical_inliers(p, 16, 2.0))
out["radius outliers r=0.3"] = timed(lambda: tools.radius_inliers(p, 0.3, 5))
n = ops.estimate_normals(x, k=16)[0]
how = {"normals": n, "reach": 0.5, "steps": 20, "tolerance": 1e-30}
out["icp 20 steps"] = timed(lambda: tools.icp(moved, p, **how))
print(json.dumps(out))
"""
THEIRS = """
import json, sys, time
import numpy as np
import open3d as o3d
p = np.load(sys.argv[1]).astype(np.float64); moved = np.load(sys.argv[2]).astype(np.float64)
cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(p))
def timed(f):
    best = 1e9
    for _ in range(3):
        begin = time.process_time(); f(); best = min(best, time.process_time() - begin)
    return best
k16 = o3d.geometry.KDTreeSearchParamKNN(16)
out = {}
out["farthest 16384"] = timed(lambda: cloud.farthest_point_down_sample(16384))
out["normals k=16"] = timed(lambda: cloud.estimate_normals(k16))
out["statistical outliers k=16"] = timed(lambda: cloud.remove_statistical_outlier(16, 2.0))
out["radius outliers r=0.3"] = timed(lambda: cloud.remove_radius_outlier(5, 0.3))
source = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(moved))
reg = o3d.pipelines.registration
criteria = reg.ICPConvergenceCriteria(1e-30, 1e-30, 20)
out["icp 20 steps"] = timed(lambda: reg.registration_icp(
    source, cloud, 0.5, np.eye(4), reg.TransformationEstimationPointToPlane(), criteria))
print(json.dumps(out))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", required=True, help="Python of an environment with open3d")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import os

    import numpy as np
    from mlx_lattice.samples import streets

    points = np.concatenate([streets.street(s)[0] for s in (1, 2)])[:120_000]
    angle = 0.02
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LATTICE_NUM_THREADS": "1"}
    best: dict[str, dict[str, float]] = {"ours": {}, "open3d": {}}
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{name}.npy") for name in "ab"]
        np.save(files[0], points.astype(np.float32))
        np.save(files[1], (points @ turn.T + [0.1, 0.05, 0.02]).astype(np.float32))
        for _ in range(arguments.rounds):
            for side, python, code in (
                ("ours", sys.executable, OURS),
                ("open3d", arguments.peer, THEIRS),
            ):
                done = subprocess.run(
                    [python, "-c", code, *files],
                    env=env,
                    check=True,
                    capture_output=True,
                    text=True,
                )
                for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                    best[side][name] = min(seconds, best[side].get(name, 1e9))
    print(f"{len(points):,} points; CPU milliseconds of one thread, best of {arguments.rounds}")
    for name, ours in best["ours"].items():
        theirs = best["open3d"][name]
        print(f"{name:<28} {1e3 * ours:9.0f} {1e3 * theirs:9.0f}   {theirs / ours:6.2f} x")


if __name__ == "__main__":
    main()
