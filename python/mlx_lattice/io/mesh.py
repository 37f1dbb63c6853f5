"""Triangle meshes of OFF, OBJ and STL files, and points drawn from their surface.

    P(point in triangle t) = area(t) / sum of areas
    point = a + u (b - a) + v (c - a),    u, v >= 0,    u + v <= 1

Points are uniform on the surface and depend on the seed only. A file without faces gives its
vertices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np

from ..core._checks import integer, numpy_array, one_of
from ..core._checks import path as check_path
from ._check import file_size, fits, naming
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath

Parts: TypeAlias = tuple[np.ndarray, np.ndarray]  # vertices and faces

SAMPLES = 10_000
FACET = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh: vertices (V, 3) float64, and faces (F, 3) int64, rows of vertices.

    A face with a row that is no vertex is a ValueError.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import io
        >>> square = io.Mesh(np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]),
        ...                  np.array([[0, 1, 2], [0, 2, 3]]))
        >>> cloud = square.sample(1000)
        >>> cloud.columns["normal"][0].tolist()
        [0.0, 0.0, 1.0]
    """

    vertices: np.ndarray
    faces: np.ndarray

    def __post_init__(self) -> None:
        vertices = numpy_array(self, "vertices", self.vertices).astype(np.float64)
        faces = numpy_array(self, "faces", self.faces, kinds=None)
        if vertices.ndim != 2 or vertices.shape[1] != 3:
            raise ValueError(f"[Mesh] vertices: found shape {vertices.shape}, expected (V, 3)")
        if faces.size == 0:
            faces = np.zeros((0, 3), np.int64)
        if faces.ndim != 2 or faces.shape[1] != 3 or faces.dtype.kind not in "iu":
            raise ValueError(
                f"[Mesh] faces: found {faces.dtype} of shape {faces.shape}, expected integers of "
                "shape (F, 3)"
            )
        if faces.size and not 0 <= faces.min() <= faces.max() < len(vertices):
            bad = faces.max() if faces.max() >= len(vertices) else faces.min()
            raise ValueError(f"[Mesh] a face with vertex {bad}, expected 0..{len(vertices) - 1}")
        object.__setattr__(self, "vertices", vertices)
        object.__setattr__(self, "faces", faces.astype(np.int64))

    def sample(self, count: int, seed: int | Sequence[int] = 0) -> PointCloud:
        """PointCloud of `count` points, uniform on the surface, with columns `normal` and `face`.

        The seed alone decides which points. A mesh without area is a ValueError.
        """
        count = integer("Mesh.sample", "count", count, least=0, most=2**40)
        a, b, c = (self.vertices[self.faces[:, i]] for i in range(3))
        cross = np.cross(b - a, c - a)
        area = np.linalg.norm(cross, axis=1)
        total = area.cumsum()
        if not len(total) or not np.isfinite(total[-1]) or total[-1] <= 0:
            raise ValueError(
                "[Mesh.sample] the surface has no area: expected finite vertices and a triangle "
                "that is not flat"
            )
        rng = _generator("Mesh.sample", seed)
        at = np.searchsorted(total, rng.random(count) * total[-1], side="right")
        face = np.minimum(at, len(total) - 1)
        u, v = rng.random((2, count))
        fold = u + v > 1
        u, v = np.where(fold, 1 - u, u)[:, None], np.where(fold, 1 - v, v)[:, None]
        points = a[face] + u * (b[face] - a[face]) + v * (c[face] - a[face])
        normal = cross[face] / np.maximum(area[face], np.finfo(np.float64).tiny)[:, None]
        columns = {"normal": normal.astype(np.float32), "face": face.astype(np.int32)}
        return PointCloud(points.astype(np.float32), columns)


def _generator(who: str, seed: int | Sequence[int]) -> np.random.Generator:
    several = isinstance(seed, (list, tuple))
    given = [integer(who, "seed", s, 0, 2**63) for s in (seed if several else [seed])]  # type: ignore[union-attr]
    return np.random.default_rng(given if several else given[0])


def read_mesh(path: FilePath, format: str | None = None) -> Mesh:
    """The Mesh of an OFF, OBJ or STL file; polygons are cut into triangles.

    Args:
        format: "off", "obj" or "stl" where the extension does not tell.

    Raises:
        ValueError: The file is not what it says; the message begins with its path.
    """
    check_path("read_mesh", path)
    name = str(path).rsplit(".", 1)[-1].lower() if format is None else format
    one_of("read_mesh", "format", name, tuple(MESHES))
    with naming(path, name.upper()), open(path, "rb") as file:
        vertices, faces = MESHES[name](file)
        if not len(vertices):
            raise ValueError("no vertices")
        return Mesh(vertices, faces)


def read_surface(
    path: FilePath,
    format: str | None = None,
    samples: int = SAMPLES,
    seed: int | Sequence[int] = 0,
) -> PointCloud:
    """PointCloud of `samples` points drawn from the surface of a mesh file.

    A mesh without faces gives its vertices. `format` is as in `read_mesh`; the seed alone decides
    which points are drawn.
    """
    samples = integer("read_surface", "samples", samples, least=0, most=2**40)
    _generator("read_surface", seed)
    mesh = read_mesh(path, format)
    if not len(mesh.faces):
        return PointCloud(mesh.vertices)
    with naming(path, "mesh"):
        return mesh.sample(samples, seed)


def _off(file: BinaryIO) -> Parts:
    """OFF: counts, vertices, polygons.

    ModelNet40 has files whose counts stand on the line of the word OFF.
    """
    text = file.read().decode("latin-1")
    if not text[:3].upper() == "OFF":
        raise ValueError(f"begins with {text[:10]!r}, expected 'OFF'")
    if "#" in text:
        text = "\n".join(line.split("#")[0] for line in text.split("\n"))
    numbers = np.array(text[3:].split(), np.float64)
    if len(numbers) < 3:
        raise ValueError("no counts of vertices and faces")
    n_vertices, n_faces = (_count(v) for v in numbers[:2])
    if 3 * n_vertices + 4 * n_faces > len(numbers):
        raise ValueError(
            f"{n_vertices} vertices and {n_faces} faces cannot stand in {len(numbers)} numbers: "
            "truncated, or the counts are wrong"
        )
    vertices = numbers[3 : 3 + 3 * n_vertices].reshape(-1, 3)
    rest = numbers[3 + 3 * n_vertices :]
    if n_faces and len(rest) == 4 * n_faces and (rest[::4] == 3).all():  # triangles only, no colors
        return vertices, rest.reshape(-1, 4)[:, 1:].astype(np.int64)
    return vertices, _off_polygons(text, n_faces)


def _off_polygons(text: str, n_faces: int) -> np.ndarray:
    """Faces with any number of corners, then colors; one face per line."""
    lines = [line for line in text[3:].split("\n") if line.strip()]
    lines = lines[len(lines) - n_faces :] if n_faces else []
    return _fans([[int(w) for w in line.split()[1 : 1 + int(line.split()[0])]] for line in lines])


def _obj(file: BinaryIO) -> Parts:
    """Wavefront OBJ: lines `v x y z` and `f a b c ...`.

    A corner is a, a/t, a//n or a/t/n, counted from 1, or back from -1.
    """
    vertices, faces = [], []
    for number, line in enumerate(file, 1):
        words = line.split()
        try:
            if words[:1] == [b"v"]:
                vertices.append((float(words[1]), float(words[2]), float(words[3])))
            elif words[:1] == [b"f"]:
                corners = [int(w.split(b"/", 1)[0]) for w in words[1:]]
                if 0 in corners:
                    raise ValueError("corner 0; corners count from 1")
                faces.append([c - 1 if c > 0 else len(vertices) + c for c in corners])
        except (ValueError, IndexError) as error:
            raise ValueError(f"line {number}: {line[:60].decode('latin-1')!r}: {error}") from None
    return np.array(vertices, np.float64).reshape(-1, 3), _fans(faces)


def _stl(file: BinaryIO) -> Parts:
    """STL, binary (a count and 50 bytes per facet) or text. Corners are not joined."""
    size = file_size(file)
    head = file.read(84)
    if len(head) == 84 and size == 84 + FACET.itemsize * struct.unpack("<I", head[80:])[0]:
        facets = np.fromfile(file, FACET)
        corners = facets["corners"].reshape(-1, 3).astype(np.float64)
    elif head.lstrip().startswith(b"solid"):
        file.seek(0)
        words = file.read().split()
        at = [i for i, w in enumerate(words) if w == b"vertex"]
        if at and at[-1] + 3 >= len(words):
            raise ValueError("truncated in the last vertex")
        corners = np.array([words[i + 1 : i + 4] for i in at], np.float64).reshape(-1, 3)
        if len(corners) % 3:
            raise ValueError(f"{len(corners)} vertices, expected three per facet")
    else:
        count = struct.unpack("<I", head[80:])[0] if len(head) == 84 else 0
        fits(count, FACET.itemsize, max(size - 84, 0), "facets")
        raise ValueError("neither text that begins with 'solid' nor 84 bytes and 50 per facet")
    return corners, np.arange(len(corners), dtype=np.int64).reshape(-1, 3)


def _fans(polygons: list[list[int]]) -> np.ndarray:
    """(F, 3): each polygon cut into triangles at its first corner."""
    for polygon in polygons:
        if len(polygon) < 3:
            raise ValueError(f"a face with {len(polygon)} corners, expected 3 or more")
    triangles = [(p[0], p[i], p[i + 1]) for p in polygons for i in range(1, len(p) - 1)]
    return np.array(triangles, np.int64).reshape(-1, 3)


def _count(value: float) -> int:
    if value != int(value) or value < 0:
        raise ValueError(f"count {value}, expected a whole number")
    return int(value)


MESHES: dict[str, Callable[[BinaryIO], Parts]] = {"off": _off, "obj": _obj, "stl": _stl}
