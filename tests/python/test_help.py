"""Help: every public name has a sentence, its arguments, a signature and an example that runs."""

import doctest
import importlib
import inspect
import pkgutil
import re
import types

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
import trees
from mlx_lattice import _help, core, nn, ops, points, samples
from mlx_lattice._help import compose


def modules_with_names():
    """Name behind `mlx_lattice.` -> module, for those without an underscore that have `__all__`."""
    for info in pkgutil.walk_packages(ml.__path__, "mlx_lattice."):
        name = info.name.partition(".")[2]
        if not re.search(r"(^|\.)_", name):
            module = importlib.import_module(info.name)
            if hasattr(module, "__all__"):
                yield name, module


def shown_by(module):
    """Modules that a module shows, also over several steps."""
    for value in (getattr(module, name) for name in module.__all__):
        if inspect.ismodule(value):
            yield value.__name__.partition(".")[2]
            yield from shown_by(value)


WITH_NAMES = dict(modules_with_names())
FOLDERS = {
    info.name
    for info in pkgutil.iter_modules(ml.__path__)
    if info.ispkg and not info.name.startswith("_")
}
PUBLIC = FOLDERS.union(shown_by(ml), *(shown_by(WITH_NAMES[f]) for f in FOLDERS))
MODULES = {"ml": ml} | {name: WITH_NAMES[name] for name in sorted(PUBLIC)}


def test_no_name_escapes():
    """A module with `__all__` is public, or its package shows all of its names."""
    assert {"datasets", "transforms", "training.losses", "models.convert"} <= PUBLIC
    for name, module in WITH_NAMES.items():
        if name not in PUBLIC:
            package = WITH_NAMES[name.rpartition(".")[0]]
            assert set(module.__all__) <= set(package.__all__), name


@pytest.mark.parametrize("prefix", MODULES)
def test_every_public_name_is_explained(prefix):
    assert _help.lacking(MODULES[prefix], prefix) == {}


def test_what_lacks_help_is_found():
    module = types.ModuleType("planted")

    def silent(weight: int) -> int:
        return weight

    module.__all__, module.silent = ["silent"], silent
    told = _help.lacking(module, "planted")["planted.silent"]
    assert told == ["example", "sentence", "argument weight", "returns", "raises"]


def documented():
    seen = set()
    for prefix, module in MODULES.items():
        for name, value in compose.public(module, prefix):
            if id(value) not in seen:
                seen.add(id(value))
                yield pytest.param(name, value, id=name)


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    """A folder with a small tree of each published data set, by the names of the examples."""
    folder = tmp_path_factory.mktemp("data")
    for make in (
        trees.semantic_kitti,
        trees.nuscenes,
        trees.scannet,
        trees.s3dis,
        trees.modelnet40,
        trees.shapenetpart,
    ):
        root = folder / make.__name__.replace("_", "")
        root.mkdir()
        make(root)
    return folder


@pytest.mark.parametrize("name, value", list(documented()))
def test_the_example_runs(name, value, data_sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for tree in data_sets.iterdir():
        (tmp_path / tree.name).symlink_to(tree)
    threads = ml.core.thread_count()
    test = doctest.DocTestParser().get_doctest(value.__doc__, {}, name, None, 0)
    assert test.examples
    told = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=told.append)
    ml.core.set_thread_count(threads)
    assert runner.failures == 0, "".join(told)


def test_examples_belong_to_names():
    names = {name for prefix, m in MODULES.items() for name, _ in compose.public(m, prefix)}
    assert set(compose.examples()) - names == set()


@pytest.mark.parametrize("prefix", MODULES)
def test_signatures_are_typed(prefix):
    """Every argument of every public function and class has a type, and so has every result."""
    for name, value in compose.public(MODULES[prefix], prefix):
        try:
            known = inspect.signature(value)
        except ValueError:  # made by a function of the library only
            continue
        for p in known.parameters.values():
            assert p.annotation is not inspect.Parameter.empty, f"{name}({p.name})"
        if not inspect.isclass(value):
            assert known.return_annotation is not inspect.Signature.empty, name


def test_types_are_shown_by_help():
    text = str(inspect.signature(ops.conv3d))
    assert "x: 'SparseTensor'" in text and "stride: 'int | tuple[int, int, int]' = 1" in text


def test_numpy_arrays_and_lists_are_arrays():
    coords = np.array([[0, 0, 0, 0], [0, 1, 0, 0]], np.int32)
    feats = np.ones((2, 4), np.float32)
    for c, f in ((coords, feats), (coords.tolist(), feats.tolist())):
        x = ml.SparseTensor(c, f)
        assert x.coords.dtype == mx.int32 and x.feats.dtype == mx.float32
        y = ops.subm_conv3d(x, np.ones((8, 3, 3, 3, 4), np.float32))
        assert y.shape == (2, 8)
        assert ops.lookup_coords(c, [[0, 1, 0, 0]]).tolist() == [1]
    both = ops.sparse_collate([coords[:, 1:], coords[:, 1:]], [feats, feats])
    assert both.shape == (4, 4)


def test_methods_and_constructors_take_numpy_arrays_and_lists():
    x, q = samples.tensor(), ml.quantize_weight(mx.ones((8, 32)))
    coords, feats = np.array(x.coords), np.ones((6, 4), np.float32)
    positions = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    arrays = (np.array(a) for a in (q.weight, q.scales, q.biases))
    sizes = (q.group_size, q.bits, q.in_channels, q.out_channels, q.kernel_size, q.layout)
    assert ml.QuantizedWeight(*arrays, *sizes).form == q.form
    for rows in (coords, coords.tolist()):
        assert len(core.CoordinateSet(rows)) == 6
        assert core.CoordinateManager().insert_coords(rows).stride == (1, 1, 1)
    for values in (feats, feats.tolist()):
        for y in (x.replace(feats=values), x.with_feats(values)):
            assert mx.array_equal(y.feats, mx.ones((6, 4)))
    assert core.SparseTensor.from_dense(np.ones((1, 2, 2, 2, 1), np.float32)).shape == (8, 1)
    assert core.KernelRelation([0, 1], [1, 0], [0, 0], n_in=2, n_out=2, n_kernels=1).edge_count == 2
    assert core.NeighborRelation([0, 1], [1, 0], n_query=2, n_source=2).n_query == 2
    for given in (positions, positions.tolist()):
        assert core.NeighborIndex(given).knn(given, k=1).edge_count == 5
        assert len(points.PointSet(given, [2, 3], grid=0.1)) == 5
    row, one = [[0, 0, 0, 0]], np.zeros(1, np.int32)
    for value in (
        core.PointVoxelMap([[0] * 8], np.ones((1, 8), np.float32)).rows,
        core.CoordinateOrdering(row, [0], one).coords,
        core.SparseAlignment(row, [1], [0], one).coords,
        core.SparseOccupancy(row, [1], one, [0], one).coords,
        core.OccupancyExpansion(row, [1], [0], one).coords,
        core.SparseQuantization(row, [1], one, [1]).coords,
    ):
        assert isinstance(value, mx.array)
    with pytest.raises(TypeError, match=r"\[replace\] feats: found str, expected"):
        x.replace(feats="ones")


def test_tensors_are_easy():
    x = samples.tensor()
    assert len(x) == 6 and bool(ops.prune(x, mx.array([], mx.int32)))
    for value, expected in (
        (-x, -x.feats),
        (x * 2, x.feats * 2),
        (2 * x, x.feats * 2),
        (x / 2, x.feats / 2),
        (1 - x, 1 - x.feats),
        (x + mx.ones(4), x.feats + 1),
        (x > 2, x.feats > 2),
        (x <= 2, x.feats <= 2),
        (abs(-x), x.feats),
    ):
        assert value.same_coords(x) and mx.array_equal(value.feats, expected)
    assert mx.array_equal((x / x).feats[1:], mx.ones((5, 4)))
    assert ops.cat(x, x).shape == ops.cat([x, x]).shape == (6, 8)
    with pytest.raises(ValueError, match="does not broadcast to"):
        x * mx.ones((2, 6, 4))
    assert not hasattr(x, "nothing")
    for theirs, ours in (
        ("F", "feats"),
        ("C", "coords"),
        ("features", "feats"),
        ("indices", "coords"),
    ):
        with pytest.raises(AttributeError, match=f"{theirs}.*`{ours}`"):
            getattr(x, theirs)


def test_gradients_pass_through_the_boundary():
    x = samples.tensor()
    weight = mx.ones((8, 3, 3, 3, 4))
    gradient = mx.grad(lambda w: (ops.subm_conv3d(x, w) * 2).feats.sum())(weight)
    assert gradient.shape == weight.shape


def test_stubs_are_shipped():
    folder = __import__("pathlib").Path(ml.__file__).parent
    assert (folder / "py.typed").is_file()
    text = (folder / "_ext.pyi").read_text()
    assert "def conv3d(x: SparseTensor, weight: ArrayLike | QuantizedWeight" in text


def test_padding_warns_once():
    from mlx_lattice.nn import _checks

    _checks._warned = False
    with pytest.warns(UserWarning, match="Write padding=0"):
        nn.Conv3d(4, 8, kernel_size=3, stride=2, padding=1)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Conv3d(4, 8, kernel_size=3, stride=2, padding=1)  # said once
        _checks._warned = False
        nn.Conv3d(4, 8, kernel_size=3, stride=2)
        nn.Conv3d(4, 8, kernel_size=2, stride=2, padding=1)


def test_negative_padding_is_a_shift():
    line = ml.SparseTensor(
        [[0, i, 0, 0] for i in range(6)], mx.arange(6)[:, None].astype(mx.float32)
    )
    weight = mx.array([1.0, 10.0, 100.0]).reshape(1, 3, 1, 1, 1)
    got = ops.conv3d(line, weight, kernel_size=(3, 1, 1), stride=(2, 1, 1), padding=(-1, 0, 0))
    # out * 2 + (-1, 0, 1) + 1: PyTorch's padding 0
    expected = [
        sum(w * v for w, v in zip((1, 10, 100), range(2 * o, 2 * o + 3)) if v < 6) for o in range(3)
    ]
    assert got.feats[:, 0].tolist() == expected


def test_explain_speaks_of_padding_and_time():
    x = samples.tensor()
    weight = mx.ones((8, 3, 3, 3, 4))
    told = str(ml.explain(ops.conv3d, x, weight, stride=2, padding=1))
    assert "In words: conv runs on the cpu" in told and "Predicted time: about" in told
    assert "an odd size is centered already" in told
    assert "Padding" not in str(ml.explain(ops.conv3d, x, weight, stride=2))
    assert "Padding" in str(ml.explain(nn.Conv3d(4, 8, 3, padding=(0, 1, 0)), x))
