"""Features of encoders: colors, similarity, clusters, few labels, and the command with its page.

The recorded part is of Sonata: upcast features, colors and cosines of goldens/encoder_sonata.npz.
"""

import json
import re

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import cli, encoders, io, models, samples, viewer
from recordings import Recording
from torch_files import save


@pytest.fixture(scope="module")
def sonata():
    recorded = Recording("encoder_sonata")
    levels = recorded.net.encode(recorded.x)
    return recorded, np.array(models.upcast(levels, 2)), np.array(models.upcast(levels, None))


def test_upcast(sonata):
    recorded, two, every = sonata
    assert two.shape == (715, 88) and every.shape == (715, 104)
    for name, feats in (("upcast2", two), ("upcast_all", every)):
        if f"{name}/feat_rows" in recorded:
            recorded.near(f"{name}/feat_rows", feats[::4])
    assert np.array_equal(every[:, 16:][:, -88:], two)


def test_recorded_colors_and_cosines(sonata):
    recorded, feats, _ = sonata
    theirs = recorded["pca/v"].astype(np.float64)
    ours = encoders.principal_directions(feats, 6)
    # The original finds its directions by a few random products: the first ones are exact.
    near = np.abs((ours * theirs).sum(axis=0))
    assert (near[:4] > 0.999).all() and (near > 0.95).all()
    # Directions do not depend on the unit, not even where squares would overflow.
    assert np.allclose(encoders.principal_directions(1e200 * feats.astype(np.float64), 6), ours)
    colors = encoders.pca_colors(feats, directions=theirs)
    assert np.allclose(colors, recorded["pca/color"], atol=1e-4)
    cosines = encoders.similarity(feats, int(recorded["sim/index"]))
    assert np.allclose(cosines, recorded["sim/cosine"], atol=1e-5)


def blobs(n=60, channels=12, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((3, channels)) * 4
    truth = np.repeat(np.arange(3), n)
    feats = centers[truth] + 0.2 * rng.standard_normal((3 * n, channels))
    return feats.astype(np.float32), truth


def test_clusters_and_few_labels():
    feats, truth = blobs()
    found = encoders.kmeans(feats, 3, seed=1)
    assert all(len(set(found[truth == k])) == 1 for k in range(3)) and len(set(found)) == 3
    assert np.array_equal(found, encoders.kmeans(feats, 3, seed=1))
    labels = encoders.transfer_labels(feats, [5, 65, 125], [7, 8, 9])
    assert np.array_equal(labels, truth + 7)
    known = np.where(np.arange(180) % 10 == 0, truth, -1)
    probe = encoders.linear_probe(feats, known, 3, steps=60)
    assert (np.array(probe(mx.array(feats))).argmax(axis=1) == truth).mean() > 0.99


def test_packed_features_keep_cosines():
    feats, _ = blobs(channels=40)
    packed = encoders.packed_features(feats, 32).astype(np.float32)
    assert packed.dtype == np.float32 and packed.shape == (180, 32)
    assert np.allclose(encoders.similarity(packed, 3), encoders.similarity(feats, 3), atol=0.02)
    assert encoders.packed_features(feats.astype(np.float16), 32).shape == (180, 32)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda f: encoders.kmeans(f, 0), "count must be"),
        (lambda f: encoders.similarity(f, 500), "row must be"),
        (lambda f: encoders.similarity(f[0], 0), "shape .N, C."),
        (lambda f: encoders.transfer_labels(f, [], []), "at least 1"),
        (lambda f: encoders.transfer_labels(f, [999], [1]), "rows must be in 0..179"),
        (lambda f: encoders.linear_probe(f, np.full(180, -1), 3), "one at least"),
        (lambda f: encoders.linear_probe(f, np.zeros(180, int), 2**31 - 1), "at most 65,536"),
        (lambda f: encoders.principal_directions(f, 99), "count must be"),
        (
            lambda f: encoders.pipeline_of(
                models.Sonata(
                    5,
                    enc_depths=(1,),
                    enc_channels=(8,),
                    enc_num_head=(1,),
                    enc_patch_size=(8,),
                    stride=(),
                )
            ),
            "nothing is published",
        ),
        (lambda f: encoders.pca_colors(f * np.nan), r"pca_colors\] feats must be finite"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(blobs()[0])


def layers_of(path):
    data = re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1]
    return {layer["name"]: layer for layer in json.loads(data)["layers"]}


def test_the_command_with_the_network_that_ships(tmp_path, capsys):
    scan = samples.write_scans(tmp_path / "yard", 1)[0]
    page, table = tmp_path / "look.html", tmp_path / "out.npz"
    words = ["features", str(scan), "--view", str(page), "--output", str(table), "--clusters", "4"]
    assert cli.main(words) == 0
    assert "wrote" in capsys.readouterr().out
    layers = layers_of(page)
    assert layers["pca"]["kind"] == "rgb" and layers["similarity"]["kind"] == "similar"
    assert layers["cluster"]["kind"] == "class"
    assert "http" not in re.sub("http://www.w3.org", "", page.read_text())
    found = np.load(table)
    assert found["inverse"].shape == (6000,) and len(found["features"]) == len(found["pca"])
    cloud = tmp_path / "out.ply"
    assert cli.main(["features", str(scan), "--output", str(cloud)]) == 0
    assert io.read(cloud).columns["color"].shape == (6000, 3)
    assert cli.main(["predict", "streets", str(scan), str(tmp_path / "labeled.ply")]) == 0


def test_the_command_with_a_checkpoint(sonata, tmp_path, capsys):
    recorded = sonata[0]
    path, scan = tmp_path / "sonata.pth", samples.write_scans(tmp_path / "yard", 1)[0]
    save(path, {"config": recorded.config, "state_dict": recorded.state})
    page = tmp_path / "look.html"
    words = ["features", str(scan), "--model", str(path), "--view", str(page)]
    assert cli.main([*words, "--pipeline", "sonata", "--voxel", "0.2"]) == 0
    told = capsys.readouterr().out
    assert "Sonata / Concerto" in told and "CC-BY-NC" in told and "88 features" in told
    assert cli.main([*words, "--voxel", "0.2"]) == 1
    assert "--pipeline" in capsys.readouterr().err
    assert cli.main(["features", str(scan)]) == 1
    assert "--view" in capsys.readouterr().err


def test_a_picture_of_vectors(tmp_path):
    cloud = io.PointCloud(
        np.random.default_rng(0).random((50, 3)), {"similarity": np.ones((50, 8), np.int8)}
    )
    assert viewer.picture(cloud, color="similarity", size=(64, 64)).size == (64, 64)
