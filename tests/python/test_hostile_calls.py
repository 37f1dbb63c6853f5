"""Hostile calls of the library: each of these once crashed, read foreign memory or misled."""

import copy
import pickle

import mlx.core as mx
import numpy as np
import pytest
from hostile import cloud_of, survives
from mlx_lattice import (
    SparseTensor,
    cli,
    core,
    io,
    models,
    nn,
    ops,
    points,
    training,
    transforms,
    viewer,
)

rng = np.random.default_rng


@pytest.mark.parametrize("form", [{}, {"use_rel_pos": True}, {"xconv": True, "k": 2}])
@pytest.mark.parametrize("row", [5, -7, 2**30])
def test_neighbor_rows_are_checked(form, row):
    conv = points.PointCNNConv(4, 4, **form)
    idx = mx.array([[row, 0], [0, 0], [0, 0]])
    with pytest.raises(
        ValueError, match=r"\[(PointCNNConv|indexed_segment_reduce)\].*(holds|is outside)"
    ):
        conv(mx.ones((3, 4)), mx.ones((3, 3)), idx, mx.zeros((3, 2, 3)))


def test_labels_and_weights_are_checked():
    loss, logits = training.classification_loss, mx.zeros((3, 4))
    good = mx.array([0, 1, -1])
    for labels, weights, text in (
        (mx.array([7, 0, 1]), None, "labels holds 7"),
        (mx.array([7, 0, 1]), mx.ones((4,)), "labels holds 7"),
        (good, mx.ones((2,)), "weights must have shape"),
        (mx.array([0]), None, "labels must have shape"),
    ):
        with pytest.raises(ValueError, match=text):
            loss(logits, labels, weights)
    with pytest.raises(TypeError, match="labels must hold integers"):
        loss(logits, mx.array([0.5, 1.0, 2.0]))
    assert loss(logits, good).item() == pytest.approx(np.log(4))
    traced = mx.compile(loss)(logits, mx.array([2**30, 0, 1]), mx.ones((4,)))
    assert np.isnan(traced.item())  # a traced label has no value to check, and nothing is read


@pytest.mark.parametrize("items", [0, 3])
def test_short_state(items):
    state = (mx.zeros((1, 4), mx.int32), mx.ones((1, 2)), (1, 1, 1))[:items]
    for broken in (state, (1, 2, 3, 4)):
        with pytest.raises(ValueError, match=r"\[SparseTensor\] state must be"):
            SparseTensor.__new__(SparseTensor).__setstate__(broken)


def test_logs_end_in_any_order():
    survives("""
        import threading
        from mlx_lattice._explain import DecisionLog
        x = ml.SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), mx.ones((2, 4)))
        w = mx.ones((4, 3, 3, 3, 4))
        a, b = DecisionLog(), DecisionLog()
        a.__enter__(); b.__enter__(); a.__exit__(None, None, None)
        ml.ops.subm_conv3d(x, w)
        assert len(a.decisions) == 0
        assert [d.operation for d in b.decisions] == ["relate", "conv"]
        t = threading.Thread(target=lambda: b.__exit__(None, None, None)); t.start(); t.join()
        del a, b
        for _ in range(20): mx.eval(ml.ops.subm_conv3d(x, w).feats)
        """)


def test_zero_channels():
    survives("""
        c = mx.array([[0, 3, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0]]); f = mx.zeros((3, 0))
        x = ml.SparseTensor(c, f)
        assert x.to_dense().shape == (2, 4, 1, 1, 0)
        mx.eval(mx.grad(lambda f: x.replace(feats=f).sorted()[0].feats.sum())(f))
        mx.eval(mx.grad(lambda f: sum(a.sum() for a in x.replace(feats=f).decomposed_features))(f))
        mask = mx.ones((1, 2, 2, 2), mx.bool_)
        total = lambda d: ml.SparseTensor.from_dense(d, mask=mask).feats.sum()
        mx.eval(mx.grad(total)(mx.zeros((1, 2, 2, 2, 0))))
        """)


@pytest.mark.parametrize("name", ["subm_conv3d", "normalized_subm_conv3d"])
def test_a_slice_without_channels_is_a_weight(name):
    survives(f"""
        x = ml.SparseTensor(mx.array([[0, i, i, i] for i in range(7)]), mx.ones((7, 5))[:, :0])
        y = ml.ops.{name}(x, mx.ones((2, 3, 3, 3, 5))[..., :0], kernel_size=3)
        assert mx.array_equal(y.feats, mx.zeros((7, 2)))
        """)


@pytest.mark.parametrize(
    "call",
    [
        "ops.layer_norm(f, none, none)",
        "ops.rms_norm(f, none)",
        "ops.batch_norm(f, none, none, none, none)",
        "ops.linear(f, mx.ones((4, 5))[:, :0])",
        "points.indexed_distance(f, f)",
        "points.indexed_distance(f, f, metric='cosine')",
        "points.indexed_pair_distance(f, rows, f, rows)",
        "points.indexed_pair_distance(f, rows, f, rows, metric='cosine')",
        "mx.grad(lambda a: points.indexed_distance(a, a, metric='cosine').sum())(f)",
        "ml.SparseTensor.from_dense(mx.ones((5, 1, 2, 3, 4))[:0].transpose(1, 2, 3, 4, 0)).feats",
        "ops.attention(h, h, h, [0, 7])",
        "ops.neighbor_attention(h, h, h, ops.build_knn_relation(mx.zeros((7, 3)), k=1))",
        "training.losses.dice()(mx.ones((5, 0)).T, mx.zeros((0,), mx.int32))",
        "mx.grad(lambda a: points.indexed_distance(a, a, rows, rows).sum())(f)",
        "mx.grad(lambda a: ops.to_points(a, rows).sum())(f)",
        "mx.grad(lambda a: batch.gather_by_index(rows, a).sum())(f)",
        "batch.to_dense(values=f)",
    ],
)
def test_strided_arrays_without_channels(call):
    """MLX's sum over their channels never returns, and its scatter divides by their number."""
    survives(f"""
        from mlx_lattice import ops, points, training
        f, none = mx.ones((5, 7))[:0].T, mx.ones((5,))[:0]
        h, rows = mx.ones((5, 2, 7))[:0].transpose(2, 1, 0), mx.arange(7)
        batch = points.PointCloudBatch(mx.ones((7, 3)), f, mx.array([3, 0, 4]))
        try:
            mx.eval({call})
        except (ValueError, TypeError) as error:
            assert str(error).startswith("["), error
        """)


def test_numpy_views_do_not_reach_geometry():
    survives("""
        from mlx_lattice import core, ops, points
        c = np.zeros((1000, 4), np.int32); c[:, 1] = np.arange(1000)
        view = lambda a: np.array(a, copy=False)
        a = mx.array(c); x = ml.SparseTensor(a, mx.ones((1000, 4))); view(a)[:, 0] = 2**28
        assert len(x.batch_rows) == 1
        x = ml.SparseTensor(mx.array(c), mx.ones((1000, 4))); view(x.coords)[:, 0] = 2**28
        assert len(x.batch_rows) == 1
        r = ops.build_kernel_relation(mx.array(c), 3); view(r.edges.in_rows)[:] = 2**30; r.input_csr
        assert max(r.edges.in_rows.tolist()) < 1000
        for v in (r.output_csr, r.kernel_csr):
            view(v.row_offsets)[:] = 2**30; view(v.edge_ids)[:] = 2**30
        view(r.implicit_gemm.out_in_map)[:] = 2**30
        mx.eval(points.point_conv(mx.ones((1000, 4)), mx.ones((27, 1, 4, 4)), r))
        i = mx.array(np.zeros(5, np.int32))
        r = core.KernelRelation(i, i, i, n_in=1, n_out=1, n_kernels=1); view(i)[:] = 2**30
        y = points.point_conv(mx.ones((1, 4)), mx.ones((1, 1, 4, 4)), r)
        assert y.tolist() == [[20.0] * 4]
        n = ops.build_knn_relation(mx.array(c), k=2); view(n.edges.source_rows)[:] = 2**30
        view(n.row_offsets)[:] = 2**30
        mx.eval(ops.gather_neighbor_features(mx.ones((1000, 2)), n))
        """)


@pytest.mark.slow
def test_memory_shortage_is_an_error():
    survives("""
        import resource
        from mlx_lattice import ops
        c = np.unique(np.random.default_rng(0).integers(0, 60, (60000, 3)), axis=0)
        C = mx.array(np.concatenate([np.zeros((len(c), 1)), c], 1).astype(np.int32))
        mx.set_cache_limit(0); found = 0
        kept = [ops.build_transposed_kernel_relation(C)]  # threads begin, and have their memory
        for extra in range(1, 40):
            lim = int(open("/proc/self/statm").read().split()[0]) * 4096 + (extra << 20)
            resource.setrlimit(resource.RLIMIT_AS, (lim, resource.RLIM_INFINITY))
            try: kept.append(ops.build_transposed_kernel_relation(C))  # the pool is used up
            except MemoryError: found += 1
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        assert found
        """)


@pytest.mark.parametrize("spread, gap", [(1, 1e-2), (50, 1e-3), (50, 2e-5), (500, 1e-3)])
def test_derivatives_of_near_distances(spread, gap):
    r = rng(0)
    a = r.uniform(-spread, spread, (256, 3)).astype(np.float32)
    b = (a + r.standard_normal((256, 3)) * gap).astype(np.float32)
    A, B = mx.array(a), mx.array(b)
    d = a.astype(np.float64) - b
    n = np.linalg.norm(d, axis=1, keepdims=True)
    unit = np.where(n > 0, d / np.maximum(n, 1e-300), 0)
    g, h = mx.grad(lambda a, b: points.indexed_distance(a, b).min(axis=1).sum(), (0, 1))(A, B)
    np.testing.assert_allclose(np.array(g), unit, atol=3e-6)
    np.testing.assert_allclose(np.array(h), -unit, atol=3e-6)
    t = r.standard_normal(a.shape).astype(np.float32)
    j = mx.jvp(lambda a: points.indexed_distance(a, B), [A], [mx.array(t)])[1][0]
    np.testing.assert_allclose(np.diag(np.array(j)), (unit * t).sum(1), atol=2e-5)


def test_knn_takes_memory_for_the_rows_there_are():
    c = mx.array([[0, 1, 1, 1], [0, 0, 0, 0], [0, 2, 1, 1], [0, 5, 0, 0]])
    for k in (100, 10**8, 2**31 - 1, 2**40):
        assert ops.build_knn_relation(c, c[:2], k=k).edge_count == 8


@pytest.mark.slow
def test_too_many_neighbors_are_counted_before_they_are_stored():
    survives("""
        import resource
        from mlx_lattice import points
        P = mx.array(np.random.default_rng(0).random((46400, 3)).astype(np.float32))
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
        try: points.PointSet(P, grid=10.0).rulebook(); assert False
        except ValueError as error: assert "2152960000 neighbors" in str(error), error
        """)


def test_sizes_have_bounds(tmp_path):
    with pytest.raises(ValueError, match="indices must be below"):
        points.PointCloudBatch(mx.zeros((1, 3)), indices=mx.array([2**25]))
    for call in (
        lambda: viewer.picture(cloud_of(2), size=(64, 64), point_size=1e9),
        lambda: viewer.page(cloud_of(2), point_size=1e9),
        lambda: points.PointClassifier(1, 2, channels=(1,), blocks=2**40),
        lambda: points.PointUNet(1, 2, channels=(1,), blocks=(2**40,)),
        lambda: points.PointCNNEncoder(num_layers=2**40),
        lambda: io.write(tmp_path / "a.npz", cloud_of(2, **{"n" * 70000: np.zeros(2)})),
    ):
        with pytest.raises(ValueError, match=r"point_size|blocks|num_layers|cannot be named"):
            call()


def test_messages(tmp_path, capsys):
    assert repr(core.CoordinateSet(mx.array([[0, 0, 0, 0]]))).startswith("CoordinateSet(1 row")
    with pytest.raises(TypeError, match=r"\[encode_points\] attributes: found str, expected"):
        ops.encode_points(mx.array([[0, 1, 1, 1]]), {"a": "red"})
    op = points.custom_sparse_op_with_grad
    grad = mx.grad(lambda a: op(lambda a: (a * a, (None, a)), lambda s, g: 2 * g * s[1], a).sum())
    assert grad(mx.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match=r"gradient 0 must have shape \(3,\), found \(7, 7\)"):
        mx.grad(lambda a: op(lambda a: a * 2, lambda s, g: mx.ones((7, 7)), a).sum())(mx.ones(3))
    batch = points.PointCloudBatch(mx.ones((3, 3)))
    batch.point_set(0.1)
    for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert other.total_points == 3 and other.point_set(0.1) is not batch.point_set(0.1)
    with pytest.raises(ValueError, match=r"\[clip_neighbors\] distances\[1\] is NaN"):
        points.clip_neighbors(mx.arange(3), mx.array([3]), mx.array([0.0, np.nan, 1]), 2)
    with pytest.raises(ValueError, match="beta must be > 0 and finite"):
        ops.softplus_features(mx.array([[0.0]]), beta=float("inf"))
    io.write(tmp_path / "a.las", cloud_of(30, a=np.ones((30, 1))))
    assert io.read(tmp_path / "a.las").columns["a"].tolist() == [1.0] * 30
    with pytest.raises(ValueError, match="has 0 values per point"):
        io.write(tmp_path / "a.las", cloud_of(30, a=np.zeros((30, 0))))
    big = np.array([[1e308] * 3, [-1e308] * 3, [0] * 3])
    io.write(tmp_path / "big.npz", io.PointCloud(big))
    assert cli.main(["info", str(tmp_path / "big.npz")]) == 0
    io.write(tmp_path / "bool.npz", cloud_of(30, intensity=np.ones(30, bool)))
    assert cli.main(["view", str(tmp_path / "bool.npz"), str(tmp_path / "o.html")]) == 0
    io.write(tmp_path / "zero.npz", cloud_of(30, a=np.zeros((30, 0))))
    capsys.readouterr()
    assert (
        cli.main(["compress", str(tmp_path / "zero.npz"), str(tmp_path / "o.mlat"), "--voxel", "1"])
        == 1
    )
    assert "column 'a': found 0 values per point" in capsys.readouterr().err
    models.MinkUNet(6, 2, depth=14, width=2).save(tmp_path / "model.safetensors")
    training.scans.VoxelPipeline(0.1, ((0, "a"), (1, "b"))).save(tmp_path / "pipeline.json")
    io.write(tmp_path / "empty.ply", cloud_of(0))
    predict = ["predict", str(tmp_path), str(tmp_path / "empty.ply"), str(tmp_path / "o.ply")]
    assert cli.main(predict) == 0 and len(io.read(tmp_path / "o.ply")) == 0


def test_viewer_and_terminal(tmp_path, capsys):
    page = viewer.page(viewer.Panel(cloud_of(30), "__DATA__.ply"))
    assert '<script type="application/json" id="data">__DATA__' not in page
    assert "__DATA__.ply" in page[page.find("<title>") :][:60]
    pictures = [
        np.asarray(viewer.picture(cloud_of(300, **c), color="height", size=(64, 64)))
        for c in ({}, {"height": np.full(300, 99.0)})
    ]
    assert (pictures[0] == pictures[1]).all()
    color = rng(1).integers(0, 256, (300, 3)).astype(np.uint8)
    pictures = [
        np.asarray(viewer.picture(cloud_of(300, color=color, **c), color="rgb", size=(64, 64)))
        for c in ({}, {"rgb": np.full(300, 99.0)})
    ]
    assert (pictures[0] == pictures[1]).all()
    with pytest.raises(ValueError, match="expected one of height, column rgb"):
        viewer.picture(cloud_of(300, rgb=np.ones(300)), color="rgb", size=(64, 64))
    axes = "".join(f"property float {n}\n" for n in ("x", "y", "z", "\x1b]0;owned\x07\x1b[31mred"))
    (tmp_path / "e.ply").write_text(
        f"ply\nformat ascii 1.0\nelement vertex 1\n{axes}end_header\n0 0 0 1\n"
    )
    assert cli.main(["info", str(tmp_path / "e.ply")]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_wrong_types_are_named(tmp_path):
    sparse = SparseTensor(mx.array([[0, 0, 0, 0]]), mx.ones((1, 1)))
    bad = type("I", (), {"__index__": lambda self: 1 / 0})()
    for call, text in (
        (
            lambda: points.PointConv3d(3, 4)(mx.ones((5, 3)), mx.ones((5, 3))),
            r"\[PointSet\] points must be",
        ),
        (lambda: nn.BatchNorm(3)(np.ones((5, 3))), r"\[BatchNorm\] x must be a SparseTensor"),
        (lambda: nn.ReLU()(np.ones((5, 3))), r"\[ReLU\] x must be a SparseTensor"),
        (lambda: nn.Linear(3, 3)(np.ones((5, 3))), r"\[Linear\] x must be a SparseTensor"),
        (
            lambda: points.PointUNet(1, 2, channels=(2,), blocks=(1,))(sparse),
            r"\[PointUNet\] positions must be",
        ),
        (
            lambda: io.write(tmp_path / "x.npz", np.ones((3, 3))),
            r"\[write\] cloud must be a PointCloud",
        ),
        (
            lambda: ops.sparse_quantize(mx.zeros((1, 3)), bad),
            r"\[sparse_quantize\] voxel_size must",
        ),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    for layer in (lambda: nn.Linear(1, 2**64), lambda: nn.RMSNorm(2**64)):
        with pytest.raises(ValueError, match="must be below 2"):
            layer()


@pytest.mark.parametrize("name", ["cross_entropy", "focal", "dice", "lovasz"])
def test_every_loss_checks_its_labels(name):
    options = [{"weights": mx.ones((4,))}] if name in ("cross_entropy", "focal") else []
    if name == "cross_entropy":
        options.append({"smoothing": 0.1})
    for option in ({}, *options):
        loss, logits = getattr(training.losses, name)(**option), mx.zeros((3, 4))
        for labels in ([7, 0, 1], [2**30, 0, 1]):
            with pytest.raises(ValueError, match=rf"\[{name}\] labels holds {labels[0]}"):
                loss(logits, mx.array(labels))
        with pytest.raises(ValueError, match=rf"\[{name}\] labels must have shape \(3,\)"):
            loss(logits, mx.array([0]))
    survives(f"""
        from mlx_lattice.training import losses
        loss = losses.{name}()
        mx.compile(loss)(mx.zeros((3, 4)), mx.array([2**30, 0, 1])).item()
        """)


def test_a_parameter_that_no_memory_holds():
    """MLX itself ends the process where memory is short: such a layer is refused before."""
    for make in (
        lambda: nn.Linear(512, 2**31 - 1),
        lambda: nn.SubmConv3d(2**16, 2**16),
        lambda: nn.BatchNorm(2**31 - 1),
        lambda: nn.RMSNorm(2**31 - 1),
        lambda: points.PointConv3d(2**16, 2**16),
        lambda: points.RaggedLayerNorm(2**31 - 1),
        lambda: points.resnet18(num_classes=2**31 - 1),
    ):
        with pytest.raises(ValueError, match=r"\] a parameter of shape .* would hold [0-9,]+ val"):
            make()


def test_a_norm_of_a_single_number():
    with pytest.raises(ValueError, match=r"\[BatchNorm\] x must have shape \(N, C\)"):
        nn.BatchNorm(4)(mx.array(1.0))


@pytest.mark.parametrize("value", [1, 0.5, True])
def test_rows_that_have_no_length(value):
    rows = mx.array([0, 0])
    with pytest.raises(TypeError, match=r"\[KernelRelation\] kernel_offsets: found \w+, expected"):
        core.KernelRelation(rows, rows, rows, n_in=1, n_out=1, kernel_offsets=value)


def a_trainer():
    loss = lambda model, item: mx.array(0.0)
    return training.Trainer(nn.Linear(1, 1), training.adamw(0.1, 1), loss, quiet=True)


def test_arguments_of_a_wrong_kind_are_named(tmp_path):
    for call, kind, text in (
        (lambda: points.SetAbstraction(4, 3), TypeError, r"\[SetAbstraction\] channels.*found 3"),
        (lambda: nn.GELU(mx.ones((3,))), TypeError, r"\[GELU\] approx .*shape \(3,\)"),
        (
            lambda: points.PointResNet(groups=np.zeros((0, 4))),
            TypeError,
            r"\[PointResNet\] groups .*shape \(0, 4\)",
        ),
        (
            lambda: training.Trainer(
                nn.Linear(1, 1), training.adamw(0.1, 1), print, sync_batch_norm=np.zeros(3)
            ),
            TypeError,
            r"\[Trainer\] sync_batch_norm must be True or False",
        ),
        (
            lambda: a_trainer().step([1], count=np.zeros(3)),
            TypeError,
            r"\[Trainer\] count must be an integer, found a NumPy array",
        ),
        (lambda: a_trainer().step([]), ValueError, r"\[Trainer\] count must be >= 1, found 0"),
        (
            lambda: io.PointCloud(np.zeros((2, 3))).less(np.zeros((3, 3))),
            ValueError,
            r"\[PointCloud.less\] origin: found a NumPy array of shape \(3, 3\)",
        ),
        (
            lambda: io.read(mx.ones((3,))),
            TypeError,
            r"\[\w+\] path: found an mx.array of shape \(3,\)",
        ),
        (lambda: io.read_npz(None), TypeError, r"\[io\] path: found None, expected a text"),
        (lambda: training.WeightAverage(None), TypeError, r"\[WeightAverage\] model: found None"),
        (lambda: points.PointCloudBatch.from_list(3), TypeError, r"from_list\] clouds: found 3"),
        (lambda: transforms.Rotate(low=2**64, high=mx.array(1)), ValueError, r"\[Rotate\] high:"),
        (lambda: io.read_mlat(2**31 - 1), TypeError, r"\[read_mlat\] path: found 2147483647"),
        (lambda: points.RaggedBatchNorm(4)(0.5), ValueError, r"\[RaggedBatchNorm\] x must have"),
    ):
        with pytest.raises(kind, match=text):
            call()

    def mine(model, item):
        raise KeyError("my own")

    trainer = training.Trainer(nn.Linear(1, 1), training.adamw(0.1, 1), mine, quiet=True)
    with pytest.raises(KeyError, match=r"^'my own'$"):  # a user's own error stays as it is
        trainer.fit([1], 1)


def test_features_of_other_rows_are_not_gathered():
    """Rows are gathered by number: features with fewer rows read foreign memory."""
    positions, x = mx.random.normal((6, 3)), mx.ones((2, 4))
    down = points.SetAbstraction(4, (5,))
    up = points.FeaturePropagation(4, (5,))
    for call in (
        lambda: down(x, positions, mx.array([6])),
        lambda: up(x, positions, mx.array([6]), None, positions, mx.array([6])),
        lambda: up(mx.ones((6, 4)), positions, mx.array([6]), x, positions, mx.array([6])),
    ):
        with pytest.raises(ValueError, match=r"\[\w+n\] features must have shape \(6, C\)"):
            call()
    with pytest.raises(ValueError, match=r"\[SetAbstraction\] lengths must be >= 0 and sum to 6"):
        down(mx.ones((6, 4)), positions, mx.array([7]))


def test_a_large_integer_is_a_number():
    logits, labels = mx.zeros((3, 2)), mx.array([0, 1, 0])
    for make in (training.losses.dice, training.losses.focal):
        assert mx.isfinite(make(2**64)(logits, labels)).item()
        for value in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=r"must be in \[0, inf\), found"):
                make(value)


def test_a_map_of_other_points():
    x = SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), mx.ones((2, 1)))
    five = ops.build_point_voxel_map(mx.zeros((5, 3)), x.coords)
    with pytest.raises(ValueError, match=r"point_voxel_map must be that of the 3 points.*of 5"):
        ops.devoxelize(mx.zeros((3, 3)), x, point_voxel_map=five)
    some = {"point_active_rows": mx.array([3])}
    made = ops.build_point_voxel_map(mx.zeros((5, 3)), x.coords, **some)
    found = ops.devoxelize(mx.zeros((5, 3)), x, point_voxel_map=made, **some)
    assert found.tolist() == [[1.0]] * 3 + [[0.0]] * 2


def test_a_batch_number_beyond_the_limit():
    x = SparseTensor(mx.array([[2**31 - 1, 0, 0, 0]]), mx.ones((1, 1)))
    with pytest.raises(ValueError, match=r"coords hold batch 2147483647, expected at most 1677"):
        ops.global_sum_pool(x)


def test_copies_of_a_coordinate_set():
    one = core.CoordinateSet(mx.array([[0, 1, 2, 3]]))
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert isinstance(other, core.CoordinateSet) and other.tolist() == [[0, 1, 2, 3]]


def test_modules_inside_packages_check_their_arguments_too():
    """The generator of hostile calls did not reach them."""
    from mlx_lattice import samples
    from mlx_lattice.models import convert

    pipeline = training.VoxelPipeline(0.5, ((0, "low"), (1, "high")))
    for call, kind, text in (
        (lambda: samples.write_scans(0.5), TypeError, r"\[write_scans\] folder: found 0.5"),
        (lambda: samples.write_scans("x", 2**31 - 1), ValueError, "count must be at most 10,000"),
        (lambda: convert.from_legacy_points({}), TypeError, r"\[from_legacy_points\] weight must"),
        (lambda: pipeline.class_indices(10), TypeError, "cloud: found 10, expected a PointCloud"),
        (lambda: pipeline.of_files(mx.ones(2)), TypeError, "table: found .* a LabelTable"),
        (lambda: training.precision.Precision({"float16"}), ValueError, "expected one of float32"),
        (
            lambda: convert.minkowski_layer(mx.ones((27, 4, 4)), kind=np.ones(3), kernel_size=3),
            ValueError,
            r"\[minkowski_layer\] kind must be one of conv, transpose, found a NumPy array",
        ),
    ):
        with pytest.raises(kind, match=text):
            call()
    assert convert.from_legacy_points(mx.ones((4, 2, 27)), mx.array(2)).shape == (27, 2, 2, 2)


def test_numpy_arrays_of_any_order():
    """Big-endian arrays were `std::bad_cast`, reversed views an error of DLPack."""
    rows = np.array([[0, 1, 2, 3], [0, 4, 5, 6]])
    for given in (rows.astype(">i4"), rows.astype(">i8"), rows[::-1][::-1], rows[:, ::-1][:, ::-1]):
        x = SparseTensor(given, np.array([[1.0], [2.0]], ">f4")[::-1])
        assert x.coords.tolist() == rows.tolist() and x.feats.tolist() == [[2.0], [1.0]]
        assert ops.lookup_coords(given, given).tolist() == [0, 1]
        assert ops.lookup_coords(given[::-1], given).tolist() == [1, 0]
    for given in (np.full((2, 2), -1.0, ">f4"), np.full((2, 2), -1.0, ">f8")[::-1]):
        assert ops.relu_features(given).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(TypeError, match=r"\[relu_features\] x"):
        ops.relu_features(np.array([["a"]]))


def test_active_rows_of_another_dtype():
    rows = mx.zeros((1, 4), dtype=mx.int32)
    with pytest.raises(ValueError, match=r"active_rows must be an int32 array.*int64"):
        SparseTensor(rows, mx.ones((1, 1)), active_rows=mx.array([1], dtype=mx.int64))


def test_a_checkpoint_that_is_not_there():
    with pytest.raises(ValueError, match="path: found '', expected the name of a file"):
        training.checkpoint.load("", None, None)


def test_single_values_where_rows_belong():
    one = mx.array(1)
    with pytest.raises(TypeError, match=r"\[build_target_kernel_relation\] rows must be"):
        ops.build_target_kernel_relation(one, mx.array([-1]), mx.zeros((1, 4), mx.int32))
    with pytest.raises(TypeError, match=r"\[child_coords_from_indices\] parent_coords must be"):
        ops.child_coords_from_indices(one, mx.array([0]))


def test_a_loader_knows_its_positions():
    loader = training.Loader(mx.array([[0, 1, 1, 1]]), lambda cloud, name: cloud)
    assert loader.item(0, 0).tolist() == [0, 1, 1, 1]
    for position in (1, -1, 2**62, 0.5):
        with pytest.raises(ValueError, match=r"\[Loader\] position"):
            loader.item(position, 0)
