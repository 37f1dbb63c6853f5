"""Help: every public name has a docstring and types, and the examples in docstrings run."""

import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import mlx_lattice as ml
import pytest
import trees


def public_modules():
    """The package, and its modules without an underscore that say what they show."""
    yield ml
    for info in pkgutil.walk_packages(ml.__path__, "mlx_lattice."):
        if not re.search(r"\._", info.name) and not info.name.startswith("mlx_lattice.cli"):
            module = importlib.import_module(info.name)
            if hasattr(module, "__all__"):
                yield module


def public_callables():
    """(name, value) of functions, classes and methods of the public modules, each once."""
    seen = set()
    for module in public_modules():
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value) or id(value) in seen:
                continue
            seen.add(id(value))
            yield pytest.param(value, id=f"{module.__name__}.{name}")
            if inspect.isclass(value):
                for part, method in vars(value).items():
                    if not part.startswith("_") and inspect.isroutine(method):
                        yield pytest.param(method, id=f"{module.__name__}.{name}.{part}")


CALLABLES = list(public_callables())
WITH_EXAMPLE = [p for p in CALLABLES if ">>>" in (p.values[0].__doc__ or "")]


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    """A folder with small trees of published data sets, by the names of the examples."""
    folder = tmp_path_factory.mktemp("data")
    for make in (trees.semantic_kitti, trees.shapenetpart):
        root = folder / make.__name__.replace("_", "")
        root.mkdir()
        make(root)
    return folder


@pytest.mark.parametrize("value", WITH_EXAMPLE)
def test_the_example_runs(value, data_sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for tree in data_sets.iterdir():
        (tmp_path / tree.name).symlink_to(tree)
    threads = ml.core.thread_count()
    test = doctest.DocTestParser().get_doctest(value.__doc__, {}, value.__name__, None, 0)
    told = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=told.append)
    ml.core.set_thread_count(threads)
    assert runner.failures == 0, "".join(told)


@pytest.mark.parametrize("module", list(public_modules()), ids=lambda m: m.__name__)
def test_public_names_are_documented_and_typed(module):
    for name in module.__all__:
        value = getattr(module, name)
        if not callable(value):
            continue
        own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        assert len((own or "").strip()) > 10, name
        try:
            known = inspect.signature(value)
        except ValueError:  # a class of the extension; its stubs have the types
            continue
        if inspect.isclass(value) and issubclass(value, enum.Enum):
            continue
        for p in known.parameters.values():
            assert p.annotation is not inspect.Parameter.empty, f"{name}({p.name})"
        if not inspect.isclass(value):
            assert known.return_annotation is not inspect.Signature.empty, name


def test_stubs_are_shipped():
    folder = Path(ml.__file__).parent
    assert (folder / "py.typed").is_file()
    assert "def conv3d(x: SparseTensor" in (folder / "_ext.pyi").read_text()
