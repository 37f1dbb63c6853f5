"""Two processes on loopback: same weights as one with the doubled batch.

A rank that dies or hangs; resume.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from distributed_worker import train
from mlx_lattice.training.distributed import LOST, Ranks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not mx.distributed.is_available("ring"), reason="this MLX has no ring backend"
    ),
]
WORKER = Path(__file__).with_name("distributed_worker.py")


def launch(folder, epochs, *words, size=2):
    """What mlx.launch --backend ring does on one host, with free ports.

    Returns the processes, ended.
    """
    sockets = [socket.socket() for _ in range(size)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    hosts = folder.parent / f"{folder.name}.hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{s.getsockname()[1]}"] for s in sockets]))
    for s in sockets:
        s.close()
    ended = []
    running = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), str(epochs), *words],
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "MLX_RANK": str(r), "MLX_HOSTFILE": str(hosts)},
        )
        for r in range(size)
    ]
    try:
        for process in running:
            out, err = process.communicate(timeout=60)
            ended.append((process.returncode, out, err))
            if words[:1] == ("hang",):
                break
    finally:
        for process in running:
            process.kill()
            process.wait()
    return ended


def checkpoint(folder):
    arrays, about = mx.load(str(folder / "checkpoint.safetensors"), return_metadata=True)
    return {k: np.array(v) for k, v in arrays.items()}, json.loads(about["state"])


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "run"
    ended = launch(folder, 4)
    for code, _, error in ended:
        assert code == 0, error
    assert (
        ended[0][1] == ended[1][1] and "running_var" in ended[0][1]
    )  # every rank ends with the same weights and statistics
    return checkpoint(folder)


def test_two_ranks_are_one_with_the_doubled_batch(two_ranks, tmp_path):
    arrays, state = two_ranks
    one = train(tmp_path, 4, Ranks(), batch=2)
    expected, _ = checkpoint(tmp_path)
    assert len(state["history"]) == 4 and state["history"][-1]["loss"] < state["history"][0]["loss"]
    for row, other in zip(state["history"], one.history):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-5)
    for name, value in expected.items():
        if "running" in name:  # one process adds item after item, ranks their mean
            assert np.isfinite(arrays[name]).all() and not np.array_equal(
                arrays[name], np.zeros_like(value)
            )
            continue
        np.testing.assert_allclose(arrays[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_dead_rank_is_told_and_resume_loses_nothing(two_ranks, tmp_path):
    folder = tmp_path / "run"
    (code, _, text), (dead, *_) = launch(folder, 4, "die")
    assert dead == 9 and code == 1, text
    assert "another rank is gone" in text and "--resume" in text
    assert checkpoint(folder)[1]["epoch"] == 2
    for code, _, text in launch(folder, 4, "resume"):
        assert code == 0, text
    arrays, state = checkpoint(folder)
    assert [r["epoch"] for r in state["history"]] == [1, 2, 3, 4]
    for name, value in two_ranks[0].items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)


def test_a_rank_that_hangs_is_told(tmp_path):
    ((code, _, text),) = launch(tmp_path / "run", 4, "hang")
    assert code == LOST and "has waited 3 s" in text


def test_timeout_is_checked():
    with pytest.raises(ValueError, match=r"timeout must be in \(0, inf\), found 0"):
        Ranks(timeout=0)
