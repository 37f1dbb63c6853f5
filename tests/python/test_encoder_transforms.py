"""The steps that published encoders expect, against recorded runs of the originals.

goldens/encoder_transforms.npz: a part of the recording of the transforms of Sonata, Concerto,
Utonia and LitePT; LATTICE_GOLDENS names a folder with all of it. Cells, rows and features are equal
to the last bit; where the mean of a cloud is subtracted, they are near.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from mlx_lattice import io, models, samples
from mlx_lattice import transforms as tf
from mlx_lattice.transforms.encoders import cell_keys
from recordings import FOLDER

DATA = np.load(Path(os.environ.get("LATTICE_GOLDENS", FOLDER)) / "encoder_transforms.npz")
OURS = {
    "sonata_default": "sonata",
    "concerto_outdoor": "concerto-outdoor",
    "utonia_half": "utonia",
    "utonia_outdoor": "utonia-outdoor",
    "utonia_object": "utonia-object",
    "lidar_litept": "litept-lidar",
}


class Recorded(tf.GridSample):
    """Keeps the points that the original drew."""

    index = None

    def _picked(self, first, inverse, places, rng):
        assert np.array_equal(inverse[Recorded.index], np.arange(len(first)))
        return Recorded.index


@pytest.mark.parametrize("name", DATA["names"])
def test_pipelines(name):
    raw = {k.split("/")[-1]: DATA[k] for k in DATA.files if k.startswith(f"{name}/raw/")}
    cloud = io.PointCloud(raw.pop("coord"), raw)
    Recorded.index = DATA[f"{name}/index"]
    made = tf.encoder_pipeline(OURS[name])
    steps = [Recorded(s.size) if isinstance(s, tf.GridSample) else s for s in made.steps]
    given = tf.EncoderPipeline(tuple(steps), made.features)(cloud)
    assert np.array_equal(np.array(given.tensor.coords)[:, 1:], DATA[f"{name}/grid_coord"])
    assert np.array_equal(given.inverse, DATA[f"{name}/inverse"])
    assert np.array_equal(given.index, DATA[f"{name}/index"])
    error = np.abs(np.array(given.tensor.feats) - DATA[f"{name}/feat"]).max()
    assert error <= (4e-7 if name == "utonia_object" else 0)
    # Which point stays does not move the cells.
    plain = made(cloud)
    assert np.array_equal(plain.tensor.coords, given.tensor.coords)
    assert np.array_equal(plain.inverse, given.inverse)


def test_hash_of_cells():
    assert np.array_equal(cell_keys(DATA["fnv/grid_coord"].astype(np.int64)), DATA["fnv/key"])


@pytest.mark.parametrize("division", ["float32", "float64"])
def test_division(division):
    """Whole centimeters fall into other cells, depending on how NumPy divides."""
    cloud = io.PointCloud(DATA["division/coord"])
    made = tf.GridSample(0.02, division)(cloud)
    expected = DATA[f"division/grid_{division}"]
    expected = expected - expected.min(axis=0)
    assert np.array_equal(made.columns["grid_coord"][made.meta["inverse"]], expected)


@pytest.mark.parametrize("pick", ["first", "center", "random"])
def test_which_point_stays(pick):
    cloud = samples.scan()
    sample = tf.GridSample(0.5, pick=pick)
    made, again = (sample(cloud, np.random.default_rng(4)) for _ in range(2))
    index, inverse = made.meta["index"], made.meta["inverse"]
    assert np.array_equal(index, again.meta["index"])
    assert np.array_equal(inverse[index], np.arange(len(made)))
    assert np.array_equal(made.points, cloud.points[index])
    assert np.array_equal(made.columns["label"], cloud.columns["label"][index])
    places = cloud.points / np.float32(0.5)
    far = ((places - np.floor(places) - 0.5) ** 2).sum(axis=1)
    for row in range(0, len(made), 97):
        rows = np.flatnonzero(inverse == row)
        if pick == "first":
            assert index[row] == rows[0]
        if pick == "center":
            assert far[index[row]] == far[rows].min()


def test_missing_columns():
    cloud = io.PointCloud(np.random.default_rng(0).random((50, 3)).astype(np.float32))
    given = tf.encoder_pipeline("sonata")(cloud)
    assert given.tensor.channels == 9 and not np.array(given.tensor.feats)[:, 3:].any()
    with pytest.raises(ValueError, match="no column strength or intensity; found none"):
        tf.encoder_pipeline("litept-lidar")(cloud)
    with pytest.raises(ValueError, match="name must be one of"):
        tf.encoder_pipeline("sonnet")
    with pytest.raises(ValueError, match="one GridSample"):
        tf.EncoderPipeline((tf.CenterShift(),))
    with pytest.raises(ValueError, match="expected one name at least"):
        tf.EncoderPipeline((tf.GridSample(0.1),), ())
    bad = io.PointCloud(np.array([[0, 0, np.nan]], np.float32))
    with pytest.raises(ValueError, match="must be finite"):
        tf.GridSample(0.1)(bad)


def test_an_empty_cloud():
    cloud = io.PointCloud(np.zeros((0, 3), np.float32))
    given = tf.encoder_pipeline("sonata")(cloud)
    assert given.tensor.shape == (0, 9) and len(given.inverse) == 0


def test_from_a_cloud_to_features_of_its_points():
    net = models.Sonata(
        9,
        stride=(2,),
        enc_depths=(1, 1),
        enc_channels=(8, 16),
        enc_num_head=(1, 2),
        enc_patch_size=(64, 64),
    )
    net.eval()
    cloud = samples.scan()
    given = tf.encoder_pipeline("sonata", size=0.5)(cloud)
    feats = np.array(models.upcast(net.encode(given.tensor)))
    assert feats[given.inverse].shape == (len(cloud), 24)
