"""Transforms: what each must keep, labels that follow their points, the same bits from the same
seed.
"""

import numpy as np
import pytest
from mlx_lattice import transforms as tf
from mlx_lattice.io import PointCloud


def a_cloud(n=600, seed=0):
    """Every point knows its row: label, color and instance are functions of it."""
    rng = np.random.default_rng(seed)
    points = rng.uniform([-20, -20, -2], [20, 20, 4], (n, 3)).astype(np.float32)
    normal = rng.normal(size=(n, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    row = np.arange(n) + 10_000 * seed
    return PointCloud(
        points,
        {
            "label": (row % 7).astype(np.int32),
            "instance": (row % 5).astype(np.int32),
            "color": rng.integers(0, 256, (n, 3), dtype=np.uint8),
            "normal": normal.astype(np.float32),
            "row": row.astype(np.int32),
        },
    )


def draw(rng):
    return a_cloud(500, int(rng.integers(1, 4)))


def rng(i=0):
    return tf.rng_of(3, 1, i)


EVERY = {
    "Flip": tf.Flip("xy"),
    "Rotate": tf.Rotate("z"),
    "Scale": tf.Scale(0.5, 2, per_axis=True),
    "Translate": tf.Translate(),
    "Jitter": tf.Jitter(),
    "Elastic": tf.Elastic(2.0, 0.5),
    "Normalize": tf.Normalize(),
    "Dropout": tf.Dropout(0.5),
    "CropBox": tf.CropBox((20, 20, 20)),
    "CropSphere": tf.CropSphere(200),
    "CropRange": tf.CropRange((-10, -10, -1), (10, 10, 3)),
    "Voxelize": tf.Voxelize(2.0),
    "ColorJitter": tf.ColorJitter(),
    "ColorDrop": tf.ColorDrop(0.5),
    "Mix3D": tf.Mix3D(),
    "PolarMix": tf.PolarMix(classes=(1, 2)),
    "LaserMix": tf.LaserMix(low=-60, high=60),
    "CopyPaste": tf.CopyPaste(classes=(1, 2, 3)),
}
MIXES = ("Mix3D", "PolarMix", "LaserMix", "CopyPaste")


def test_all_are_here():
    assert set(EVERY) == set(tf.TRANSFORMS)


@pytest.mark.parametrize("name", EVERY)
def test_seeded_and_labels_follow(name):
    cloud, transform = a_cloud(), EVERY[name]
    copy = PointCloud(cloud.points.copy(), {k: v.copy() for k, v in cloud.columns.items()})
    made, again = (transform(cloud, rng(), draw) for _ in range(2))
    for a, b in ((made, again), (cloud, copy)):  # the same bits; the input is as it was
        assert np.array_equal(a.points, b.points) and set(a.columns) == set(b.columns)
        assert all(np.array_equal(v, b.columns[k]) for k, v in a.columns.items())
    if name not in ("CropRange", "Voxelize", "Normalize"):
        others = [transform(cloud, rng(i), draw) for i in range(1, 9)]
        assert any(
            len(o) != len(made)
            or not np.array_equal(o.points, made.points)
            or not np.array_equal(o.columns["color"], made.columns["color"])
            for o in others
        )
    assert made.points.dtype == np.float32 and len(made) > 0
    if name != "Voxelize":  # every column still belongs to its row
        assert np.array_equal(made.columns["label"], made.columns["row"] % 7)
        length = np.linalg.norm(made.columns["normal"], axis=1)
        assert np.abs(length - 1).max() < 1e-5


def pairwise(points):
    p = points[:60].astype(np.float64)
    return np.linalg.norm(p[:, None] - p[None], axis=2)


def test_flip_and_rotate_keep_distances_and_turn_normals():
    cloud = a_cloud()
    for transform in (tf.Flip("xyz", 1.0), tf.Rotate("x"), tf.Rotate("y"), tf.Rotate("z", 30, 30)):
        made = transform(cloud, rng())
        assert np.abs(pairwise(made.points) - pairwise(cloud.points)).max() < 1e-4
        dots = (made.points * made.columns["normal"]).sum(1)
        assert np.abs(dots - (cloud.points * cloud.columns["normal"]).sum(1)).max() < 1e-4
    assert np.array_equal(tf.Flip("xyz", 1.0)(cloud, rng()).points, -cloud.points)
    turned = tf.Rotate("z", 90, 90)(cloud, rng()).points
    assert np.abs(turned - cloud.points[:, [1, 0, 2]] * [-1, 1, 1]).max() < 1e-5
    assert np.abs(tf.Rotate("z")(cloud, rng()).points[:, 2] - cloud.points[:, 2]).max() == 0


def test_scale_keeps_tangents():
    """A tangent stays perpendicular to its normal, also when the axes scale differently."""
    cloud = a_cloud(50)
    normal = cloud.columns["normal"].astype(np.float64)
    tangent = np.cross(normal, [0.3, 0.2, 0.9])
    both = PointCloud(
        np.concatenate([cloud.points, cloud.points + tangent]).astype(np.float32),
        {"normal": np.concatenate([normal, normal]).astype(np.float32)},
    )
    made = tf.Scale(0.4, 2.5, per_axis=True)(both, rng())
    moved = made.points[50:] - made.points[:50]
    assert np.abs((moved * made.columns["normal"][:50]).sum(1)).max() < 1e-4
    factor = pairwise(tf.Scale(0.5, 2)(cloud, rng()).points)[0, 1:] / pairwise(cloud.points)[0, 1:]
    assert np.ptp(factor) < 1e-4 and 0.5 <= factor[0] <= 2


def test_small_moves_are_small():
    cloud = a_cloud()
    step = tf.Translate((1, 2, 0))(cloud, rng()).points - cloud.points
    assert np.ptp(step, axis=0).max() < 1e-5 and np.abs(step[:, 2]).max() == 0
    step = tf.Jitter(0.01, 0.02)(cloud, rng()).points - cloud.points
    assert 0.005 < step.std() < 0.012 and np.abs(step).max() <= 0.02 + 1e-5
    bent = tf.Elastic(4.0, 1.0)(cloud, rng()).points - cloud.points
    assert 0 < np.abs(bent).max() < 3
    near = cloud.points[:1] + np.array([[0, 0, 0], [0.01, 0, 0]], np.float32)
    pair = PointCloud(np.concatenate([cloud.points, near]))
    bent = tf.Elastic(4.0, 1.0)(pair, rng()).points - pair.points
    assert np.abs(bent[-1] - bent[-2]).max() < 0.02  # smooth: neighbors move together


def test_normalize():
    cloud = a_cloud()
    made = tf.Normalize()(cloud, rng())
    assert np.abs(made.points.mean(axis=0)).max() < 1e-5
    assert abs(np.linalg.norm(made.points, axis=1).max() - 1) < 1e-5
    box = tf.Normalize("box", unit=False)(cloud, rng())
    assert np.abs(box.points.min(axis=0) + box.points.max(axis=0)).max() < 1e-5
    one = tf.Normalize()(PointCloud(np.ones((1, 3), np.float32)), rng())
    assert np.array_equal(one.points, np.zeros((1, 3)))


def test_crops():
    cloud = a_cloud()
    box = tf.CropBox((8, 6, 100))(cloud, rng())
    assert (np.ptp(box.points, axis=0) <= [8, 6, 100]).all() and 0 < len(box) < len(cloud)
    sphere = tf.CropSphere(100)(cloud, rng())
    assert len(sphere) == 100 and len(tf.CropSphere(1000)(cloud, rng())) == len(cloud)
    seen = tf.CropRange((-5, -5, -1), (5, 5, 1))(cloud, rng())
    inside = ((cloud.points >= [-5, -5, -1]) & (cloud.points < [5, 5, 1])).all(axis=1)
    assert np.array_equal(seen.columns["row"], cloud.columns["row"][inside])
    shares = [len(tf.Dropout(0.4)(cloud, rng(i))) / len(cloud) for i in range(40)]
    assert min(shares) > 0.5 and max(shares) <= 1 and 0.7 < np.mean(shares) < 0.9
    order = tf.Dropout(0.4)(cloud, rng()).columns["row"]
    assert (np.diff(order) > 0).all()
    assert len(tf.CropRange((90, 90, 90), (91, 91, 91))(cloud, rng())) == 1


def test_voxelize_votes():
    points = np.array([[0.1, 0.1, 0.1], [0.2, 0.2, 0.2], [0.3, 0.3, 0.3], [1.5, 0, 0]], np.float32)
    cloud = PointCloud(points, {"label": np.array([4, 9, 9, 1], np.int32)})
    made = tf.Voxelize(1.0)(cloud)
    assert made.columns["label"].tolist() == [9, 1] and np.allclose(made.points[0], 0.2)
    assert len(tf.Voxelize(2**64)(cloud)) == 1  # more than an integer of NumPy holds


def test_colors():
    cloud = a_cloud()
    dropped = tf.ColorDrop(1.0)(cloud, rng())
    assert not dropped.columns["color"].any() and np.array_equal(dropped.points, cloud.points)
    jittered = tf.ColorJitter(0.1, 0.1, 0.0)(cloud, rng()).columns["color"]
    assert jittered.dtype == np.uint8
    order = np.argsort(cloud.columns["color"][:, 0], kind="stable")
    assert (
        np.diff(jittered[order, 0].astype(int)) >= 0
    ).all()  # contrast and brightness keep order
    with pytest.raises(ValueError, match=r"\[ColorDrop\] needs the column color"):
        tf.ColorDrop()(PointCloud(cloud.points), rng())


def test_mixes_are_made_of_both():
    cloud = a_cloud()
    for name in MIXES:
        made = EVERY[name](cloud, rng(), draw)
        mine = made.columns["row"] < 10_000
        assert mine.sum() > 0 and (~mine).sum() > 0, name
        if name != "Mix3D":  # points of this scan stay where they were
            rows = made.columns["row"][mine]
            assert np.array_equal(made.points[mine], cloud.points[rows]), name
    with pytest.raises(ValueError, match=r"\[Mix3D\] needs a second cloud"):
        tf.Mix3D()(cloud, rng())
    with pytest.raises(ValueError, match=r"\[Mix3D\] columns: found"):
        tf.Mix3D()(PointCloud(cloud.points), rng(), draw)


def test_polar_mix_replaces_a_sector():
    cloud = a_cloud()
    made = tf.PolarMix(sector=90)(cloud, rng(), draw)
    mine = made.columns["row"] < 10_000
    angle = np.degrees(np.arctan2(made.points[:, 1], made.points[:, 0])) % 360
    theirs = np.sort(angle[~mine])
    gaps = np.diff(np.concatenate([theirs, theirs[:1] + 360]))
    assert 360 - gaps.max() < 90  # the other scan lies in one sector
    assert mine.sum() + ((~mine).sum() > 0) <= len(cloud)


def test_laser_mix_alternates():
    cloud = a_cloud()
    made = tf.LaserMix((2,), -90, 90)(cloud, rng(), draw)  # two areas: above and below
    mine = made.columns["row"] < 10_000
    up = made.points[:, 2] >= 0
    assert len(set(up[mine].tolist())) == 1 and len(set(up[~mine].tolist())) == 1


def test_copy_paste_makes_room():
    cloud = a_cloud()
    made = tf.CopyPaste((1,), count=1, turned=False)(cloud, rng(), draw)
    mine = made.columns["row"] < 10_000
    piece = made.points[~mine]
    low, high = piece.min(axis=0), piece.max(axis=0)
    inside = ((made.points[mine] >= low) & (made.points[mine] <= high)).all(axis=1)
    assert not inside.any() and set(made.columns["label"][~mine]) == {1}
    ids = made.columns["instance"]
    assert not set(ids[mine]) & set(ids[~mine])


def test_compose_and_build():
    tables = [
        {"name": "Flip", "axes": "xy"},
        {"name": "Scale", "low": 0.9, "high": 1.1},
        {"name": "Jitter", "chance": 0.5},
        {"name": "Translate", "sigma": [1, 1, 0]},
    ]
    made = tf.build(tables)
    by_hand = tf.Compose(
        [tf.Flip("xy"), tf.Scale(0.9, 1.1), tf.Sometimes(tf.Jitter(), 0.5), tf.Translate((1, 1, 0))]
    )
    assert made == by_hand and "high=1.1" in repr(made)
    a, b = (t(a_cloud(), rng()) for t in (made, by_hand))
    assert np.array_equal(a.points, b.points)
    never = tf.Sometimes(tf.Flip("xyz", 1.0), 0.0)(a_cloud(), rng())
    assert np.array_equal(never.points, a_cloud().points)
    one = tf.OneOf([tf.Flip("x", 1.0), tf.Flip("y", 1.0)])
    sides = {tuple((one(a_cloud(), rng(i)).points[0] < 0).tolist()) for i in range(9)}
    assert len(sides) == 2


@pytest.mark.parametrize(
    "table, message",
    [
        ({"axes": "x"}, r"augment\[0\]: expected a table with the key name"),
        ({"name": "Flop"}, r"augment\[0\]\.name: found 'Flop', expected one of Flip"),
        ({"name": "Flip", "axis": "x"}, r"augment\[0\]\.axis: unknown; Flip has axes, p"),
        ({"name": "Flip", "axes": "w"}, r"augment\[0\]: \[Flip\] axes: found 'w'"),
        ({"name": "Scale", "low": 0}, r"augment\[0\]: \[Scale\] low: found 0"),
        ({"name": "Jitter", "sigma": "x"}, r"augment\[0\]"),
    ],
)
def test_mistakes_name_the_key(table, message):
    with pytest.raises(ValueError, match=message):
        tf.build([table], "augment")


def test_empty_clouds_stay_empty():
    empty = a_cloud()[:0]
    for name, transform in EVERY.items():
        if name not in MIXES:
            assert len(transform(empty, rng(), draw)) == 0, name
