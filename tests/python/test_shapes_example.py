"""The shapes example, made small: the loss falls, and a checkpoint resumes."""

import time

import numpy as np
import pytest

import examples


def test_surfaces():
    """What the classes say of themselves.

    Radius of the sphere, a side of the cube, the tube of the torus.
    """
    shapes, rng = examples.load("shapes"), np.random.default_rng(0)
    assert len(shapes.CLASSES) >= 6
    np.testing.assert_allclose(np.linalg.norm(shapes.sphere(50, rng), axis=1), 1)
    np.testing.assert_allclose(np.abs(shapes.cube(50, rng)).max(1), 0.8)
    p = shapes.torus(50, rng)
    np.testing.assert_allclose(np.hypot(np.hypot(p[:, 0], p[:, 1]) - 0.7, p[:, 2]), 0.3)
    r = shapes.rotation(rng)
    np.testing.assert_allclose(r @ r.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(r) > 0


def test_loss_falls_and_resumes(tmp_path):
    shapes, begin = examples.load("shapes"), time.process_time()
    options = {"clouds": 60, "tests": 24, "log": None, "checkpoint": tmp_path / "c.safetensors"}
    _, history = shapes.train(epochs=5, **options)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"], history
    _, more = shapes.train(epochs=6, resume=True, **options)
    assert more[:5] == history and len(more) == 6
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("kind, off", [("knn", 0.2), ("attention", 1.0)])
def test_other_networks_start_at_chance(kind, off):
    """They need hundreds of steps to learn, too many for a test.

    Test_point_training sees such an encoder learn.
    """
    _, history = examples.load("shapes").train(clouds=24, tests=12, epochs=1, kind=kind, log=None)
    assert abs(history[0]["loss"] - np.log(6)) < off, history
