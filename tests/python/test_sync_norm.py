"""Synchronized batch normalization: two ranks with their rows are one rank with all rows."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import nn
from sync_norm_worker import loss, rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not mx.distributed.is_available("ring"), reason="this MLX has no ring backend"
    ),
]


def test_two_ranks_are_one(tmp_path):
    sockets = [socket.socket() for _ in range(2)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{s.getsockname()[1]}"] for s in sockets]))
    for s in sockets:
        s.close()
    worker = str(Path(__file__).with_name("sync_norm_worker.py"))
    running = [
        subprocess.Popen(
            [sys.executable, worker, str(tmp_path)],
            env={**os.environ, "MLX_RANK": str(r), "MLX_HOSTFILE": str(hosts)},
        )
        for r in range(2)
    ]
    try:
        assert [process.wait(timeout=60) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    norm = nn.BatchNorm(4)
    norm.weight = mx.array([1.0, 2.0, 0.5, 1.5])
    norm.train()
    x = mx.array(np.concatenate([rows(0), rows(1)]))
    value, slope = mx.value_and_grad(lambda a: loss(norm, a))(x)
    found = [np.load(tmp_path / f"{r}.npz") for r in range(2)]
    assert abs(sum(float(f["value"]) for f in found) - value.item()) < 1e-3
    both = np.concatenate([f["slope"] for f in found])
    assert np.abs(both - np.array(slope)).max() < 1e-4
    for f in found:
        assert np.abs(f["mean"] - np.array(norm.running_mean)).max() < 1e-6
        assert np.abs(f["var"] - np.array(norm.running_var)).max() < 1e-5
