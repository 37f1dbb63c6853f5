"""Items on disk after a costly preparation, such as voxelization.

The cache has a byte budget and checksums, and serves any number of processes.

One file per item: 16 bytes of BLAKE2 over the rest, 8 bytes of the header's length, a JSON header,
the arrays one after the other. A file is written under another name and then renamed. A file whose
checksum does not fit is made anew and counted in `rebuilt`. When the files exceed the budget, the
least recently used ones are deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..core import _checks
from ..io import PointCloud
from .base import Dataset

SUFFIX = ".item"


class DiskCache:
    """Clouds on disk: `get(key, make)` reads the cloud of `key`, or makes and keeps it.

    `hits`, `misses` and `rebuilt` count what happened; `rebuilt` are files with a wrong checksum.

    Args:
        directory: Folder that the files are written to; it is made.
        budget: Bytes above which the least recently used items are deleted.

    Raises:
        TypeError, ValueError: `budget` is no positive number of bytes, or `directory` is no path.

    Examples:
        >>> import tempfile
        >>> from mlx_lattice import datasets, samples
        >>> cache = datasets.DiskCache(tempfile.mkdtemp(), budget=10**8)
        >>> for _ in range(3):
        ...     cloud = cache.get("a name", lambda: samples.scan(0))
        >>> cache.misses, cache.hits
        (1, 2)
    """

    def __init__(self, directory: str | os.PathLike[str], budget: int = 20 << 30) -> None:
        _checks.path(self, directory, "directory")
        self.budget = _checks.integer(self, "budget", budget, most=2**63)
        self.directory = Path(os.fsdecode(directory))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.hits = self.misses = self.rebuilt = 0
        self._lock = threading.Lock()
        self._size = sum(size for _, size, _ in self._files())

    def get(self, key: str, make: Callable[[], PointCloud]) -> PointCloud:
        """The cloud of a key: from the disk, or what `make` returns."""
        _checks.instance(self, "key", key, str, "a text")
        _checks.function(self, "make", make)
        path = self.directory / (hashlib.blake2b(key.encode(), digest_size=16).hexdigest() + SUFFIX)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        cloud = _unpack(data) if data else None
        with self._lock:
            self.hits += cloud is not None
            self.misses += not data
            self.rebuilt += bool(data) and cloud is None
        if cloud is not None:
            os.utime(path)
            return cloud
        cloud = make()
        _checks.instance(self, "make()", cloud, PointCloud, "a PointCloud")
        self._write(path, _pack(cloud))
        return cloud

    def _write(self, path: Path, data: bytes) -> None:
        if len(data) > self.budget:
            return
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.{threading.get_ident()}.writing")
        temporary.write_bytes(data)
        os.replace(temporary, path)
        with self._lock:
            self._size += len(data)
            if self._size > self.budget:
                self._shrink(path)

    def _files(self) -> list[tuple[int, int, Path]]:
        """(last use, bytes, path); a file that another process removed meanwhile is left out."""
        found = []
        for path in self.directory.glob("*" + SUFFIX):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            found.append((about.st_mtime_ns, about.st_size, path))
        return sorted(found)

    def _shrink(self, keep: Path) -> None:
        files = self._files()
        size = sum(s for _, s, _ in files)
        for _, bytes_, path in files:
            if size <= 0.9 * self.budget:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                size -= bytes_
        self._size = size


class Cached(Dataset):
    """A data set whose items are prepared once: prepare(cloud) is kept on disk.

    The repr of `prepare` is part of the key, so that another voxel size is another item. So are
    the sizes and times of the files of the item.

    Args:
        dataset: The data set.
        directory: Folder that the files are written to; it is made.
        prepare: Gives the cloud to keep, each time the same; by default the cloud itself.
        budget: Bytes above which the least recently used items are deleted.

    Raises:
        TypeError, ValueError: `dataset` is no data set, or as `DiskCache`.

    Examples:
        >>> import tempfile
        >>> from mlx_lattice import datasets, samples, transforms
        >>> folder, kept = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> paths = samples.write_scans(folder)
        >>> voxels = transforms.Voxelize(0.2)
        >>> data = datasets.Cached(datasets.Folder(folder), kept, lambda c: voxels(c, None))
        >>> len(data[0]) == len(data[0]) < 6000, data.cache.hits
        (True, 1)
    """

    def __init__(
        self,
        dataset: Dataset,
        directory: str | os.PathLike[str],
        prepare: Callable[[PointCloud], PointCloud] | None = None,
        budget: int = 20 << 30,
    ) -> None:
        _checks.instance(self, "dataset", dataset, Dataset, "a data set of mlx_lattice.datasets")
        if prepare is not None:
            _checks.function(self, "prepare", prepare)
        self._dataset, self._prepare = dataset, prepare
        self.root, self.split, self.table = dataset.root, dataset.split, dataset.table
        self.label = dataset.label
        self._names = [dataset.name(i) for i in range(len(dataset))]
        self.cache = DiskCache(directory, budget)

    @property
    def labeled(self) -> bool:
        return self._dataset.labeled

    def _files(self, i: int) -> list[Path]:
        return self._dataset.source(i)

    def __getattr__(self, name: str) -> object:  # targets, prediction_path, ... of the data set
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def _read(self, i: int) -> PointCloud:
        about = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self.source(i)]
        key = json.dumps([repr(self._dataset), self._names[i], about, repr(self._prepare)])
        prepare = self._prepare or (lambda cloud: cloud)
        return self.cache.get(key, lambda: prepare(self._dataset[i]))


def _pack(cloud: PointCloud) -> bytes:
    arrays = {"points": cloud.points} | {"." + n: v for n, v in cloud.columns.items()}
    rows = [(name, a.dtype.str, a.shape) for name, a in arrays.items()]
    header = json.dumps({"arrays": rows, "meta": cloud.meta}, default=str).encode()
    body = struct.pack("<Q", len(header)) + header + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.blake2b(body, digest_size=16).digest() + body


def _unpack(data: bytes) -> PointCloud | None:
    """The cloud; None where the checksum does not fit."""
    body = memoryview(data)[16:]
    if len(data) < 24 or hashlib.blake2b(body, digest_size=16).digest() != data[:16]:
        return None
    at = 8 + struct.unpack_from("<Q", body)[0]
    header = json.loads(bytes(body[8:at]))
    arrays = {}
    for name, code, shape in header["arrays"]:
        dtype, count = np.dtype(code), int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype, count, at).reshape(shape).copy()
        at += count * dtype.itemsize
    columns = {name[1:]: a for name, a in arrays.items() if name != "points"}
    return PointCloud(arrays["points"], columns, header["meta"])
