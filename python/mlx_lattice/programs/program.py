"""A program file in Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .._ext import LoadedProgram
from ..core import SparseTensor
from ..core._checks import instance, told
from ..core._checks import path as check_path
from ..points.batches import OffsetPointCloudBatch, PointCloudBatch

if TYPE_CHECKING:
    from .._ext import Session
    from ..io import PointCloud


class Program:
    """A network as one file, run by C++ (docs/programs.md); `model.export` writes it.

    A program is called with what the network was called with, by position or by name, and returns
    what the network returned: one value, or a dict by name where there are several. The results
    have the bits of the network.

    Examples:
        >>> import os, tempfile
        >>> from mlx_lattice import Program, models, samples
        >>> net = models.MinkUNet(4, 3, depth=14, width=4).eval()
        >>> path = os.path.join(tempfile.mkdtemp(), "net.lattice.safetensors")
        >>> net.export(path, example=samples.tensor())
        >>> Program.load(path)(samples.tensor()).shape
        (6, 3)
    """

    def __init__(self, loaded: LoadedProgram) -> None:
        instance(self, "loaded", loaded, LoadedProgram, "what Program.load makes")
        self._loaded = loaded
        self._session = loaded.session()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """The program of a file, or of a folder with graph.mlir and weights.safetensors.

        Such a folder is an artifact of the older package, version 2. Its program takes inputs by
        name, and a sparse tensor `x` also as `x=tensor`; it returns a dict by output name.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is no program; the message names the line of the graph.
        """
        check_path("Program.load", path)
        if not Path(path).exists():
            raise FileNotFoundError(
                f"[Program.load] {path} does not exist; `model.export({os.fspath(path)!r}, "
                "example=x)` writes it"
            )
        return cls(LoadedProgram.load(os.fspath(path)))

    @property
    def inputs(self) -> dict[str, str]:
        """Types of the inputs by name."""
        return {name: kind for name, kind, _ in self._loaded.inputs}

    @property
    def outputs(self) -> dict[str, str]:
        """Types of the outputs by name."""
        return {name: kind for name, kind, _ in self._loaded.outputs}

    @property
    def text(self) -> str:
        """The graph, one operation per line."""
        return self._loaded.text

    def export_mlir(self, folder: str | os.PathLike[str]) -> None:
        """Writes graph.mlir and weights.safetensors, version 2 of the older package's format.

        Raises:
            ValueError: The format has no operation for one of the program's; the message names it.
        """
        check_path("Program.export_mlir", folder)
        self._loaded.export_mlir(os.fspath(folder))

    @property
    def tensors(self) -> list[tuple[str, str, int, int]]:
        """(name, dtype, numbers, bytes) of each tensor of the file."""
        return list(self._loaded.tensors)

    @property
    def has_example(self) -> bool:
        """Whether the file holds an example with its result."""
        return self._loaded.has_example

    def note(self, key: str) -> str:
        """A text of the header, such as "classes"; empty if there is none."""
        return self._loaded.note(key)

    def bytes_for(self, rows: int) -> int:
        """An upper bound of the bytes of all values of a frame whose inputs have `rows` rows."""
        return self._loaded.bytes_for(rows)

    def cloud_inputs(self, cloud: PointCloud) -> dict[str, mx.array]:
        """The inputs of a program with a pipeline: `points` and its columns, float32."""
        from .pipeline import cloud_values

        shapes = {name: kind for name, kind in self.inputs.items() if name != "points"}
        if "points" not in self.inputs:
            raise ValueError(
                "[Program] the program takes no points; export it with pipeline=..., or call it"
            )
        widths = {
            n: int(k.split(", ")[1].rstrip("]")) if ", " in k else 1 for n, k in shapes.items()
        }
        keep_place = any(f" = {name}@" in self.text for name in ("crop_points", "point_voxels"))
        return cloud_values(widths, cloud, keep_place)

    def session(self, max_points: int = 0, max_rows: int = 0, max_bytes: int = 0) -> Session:
        """A state with limits, timings and inner values for one thread; 0 is no limit."""
        return self._loaded.session(max_points, max_rows, max_bytes)

    def selftest(self) -> bool | None:
        """Whether the example in the file gives its result bit by bit; None without an example."""
        from .export import same_bits

        if not self._loaded.has_example:
            return None
        inputs, outputs = self._loaded.example
        found = self.session().run(inputs)
        return all(same_bits(found[name], value) for name, value in outputs.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._session.run(self._inputs(args, kwargs))
        whole = self._is_older or len(found) > 1  # older artifacts name every output
        return found if whole else next(iter(found.values()))

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = list(self.inputs)
        values: dict[str, Any] = {}
        for name, value in [*zip(names, args), *kwargs.items()]:
            if isinstance(value, OffsetPointCloudBatch):
                value = value.to_lengths()
            if isinstance(value, PointCloudBatch):
                values[name] = value.positions
                if "features" in names and value.features is not None:
                    values["features"] = value.features
                values["lengths"] = value.lengths
            elif isinstance(value, SparseTensor) and self._is_older:
                values |= _parts(name, value, names)
            elif value is not None:
                values[name] = self._value(name, value)
        if len(args) > len(names):
            raise TypeError(f"[Program] takes {names}, found {len(args)} values")
        lengths = next((entry for entry in self._loaded.inputs if entry[2]), None)
        if lengths is not None and lengths[0] not in values and lengths[2] in values:
            values[lengths[0]] = mx.array([values[lengths[2]].shape[0]], dtype=mx.int32)
        return values

    @property
    def _is_older(self) -> bool:
        """Whether this is an artifact of the older package, which has no sparse inputs."""
        return bool(self._loaded.note("older"))

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, (mx.array, SparseTensor)):
            return value
        if not hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
            raise TypeError(
                f"[Program] {name} must be {self.inputs.get(name, 'an input')}, found {told(value)}"
            )
        integers = self.inputs.get(name, "").startswith("i32")
        return mx.array(value, dtype=mx.int32) if integers else mx.array(value)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        return f"Program({inputs} -> {', '.join(self.outputs)})"


def _parts(name: str, tensor: SparseTensor, names: list[str]) -> dict[str, mx.array]:
    """A tensor as the three inputs of an artifact of the older package: physical coordinates.

    They are called NAME_coords, NAME_features and NAME_active, or without a name.
    """
    stem = name.removesuffix("coords").removesuffix("_")
    prefix = f"{stem}_" if f"{stem}_coords" in names or "coords" not in names else ""
    stride = mx.array([1, *tensor.stride], dtype=mx.int32)
    return {
        f"{prefix}coords": tensor.coords.astype(mx.int32) * stride,
        f"{prefix}features": tensor.feats,
        f"{prefix}active": tensor.active_rows,
    }
