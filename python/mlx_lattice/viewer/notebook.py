"""What a notebook shows for values of the library: a small table and a view to turn.

The view shows points or voxels.

Nothing lazy is evaluated: features appear by shape and dtype only.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._explain import Explanation
    from .._ext import KernelRelation, NeighborRelation, SparseTensor
    from ..io import PointCloud

SHOWN = 20_000  # points of a view; a notebook stores them in its file
STYLE = "border-collapse:collapse;font-size:13px"


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """An HTML table of two columns under a title."""
    cells = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{html.escape(str(name))}</td>'
        f'<td style="text-align:left"><code>{html.escape(str(value))}</code></td></tr>'
        for name, value in rows
    )
    return f'<div><b>{html.escape(title)}</b><table style="{STYLE}">{cells}</table></div>'


def view(cloud: PointCloud) -> str:
    """The cloud as a page inside the notebook; nothing where there are no points."""
    from . import show

    return show(cloud, height=320, limit=SHOWN)._repr_html_() if len(cloud) else ""


def sparse_tensor(x: SparseTensor) -> str:
    """Rows of a SparseTensor as cells of their lattice, colored by batch."""
    import numpy as np

    from ..io import PointCloud

    coords = np.asarray(x.coords)
    rows: list[tuple[str, object]] = [
        ("rows", f"{len(coords):,}"),
        ("feats", f"{tuple(x.feats.shape)} {str(x.feats.dtype).split('.')[-1]}"),
        ("stride", tuple(x.stride)),
    ]
    if len(coords):
        low, high = coords.min(0), coords.max(0)
        rows += [
            ("batch", f"{low[0]} to {high[0]}"),
            ("x, y, z", ", ".join(f"{a} to {b}" for a, b in zip(low[1:], high[1:]))),
        ]
    cells = PointCloud((coords[:, 1:] + 0.5).astype(np.float32), {"batch": coords[:, 0]})
    return table("SparseTensor", rows) + view(cells)


def point_cloud(cloud: PointCloud) -> str:
    """Points, columns and bounds of a PointCloud, and the cloud itself."""
    bounds = cloud.bounds()
    rows: list[tuple[str, object]] = [("points", f"{len(cloud):,} {cloud.points.dtype}")]
    rows += [(name, f"{v.dtype} {v.shape}") for name, v in cloud.columns.items()]
    if bounds is not None:
        rows.append(("from", " ".join(f"{v:.6g}" for v in bounds[0])))
        rows.append(("to", " ".join(f"{v:.6g}" for v in bounds[1])))
    return table("PointCloud", rows) + view(cloud)


def kernel_relation(r: KernelRelation) -> str:
    """Ends, offsets and edges of a KernelRelation."""
    rows = [
        ("kind", r.kind),
        ("input rows", f"{r.n_in:,}"),
        ("output rows", f"{r.n_out:,}"),
        ("kernel offsets", r.n_kernels),
        ("edges", f"{r.edge_count:,}"),
        ("edges per output row", f"{r.edge_count / max(r.n_out, 1):.2f}"),
    ]
    return table("KernelRelation", rows)


def neighbor_relation(r: NeighborRelation) -> str:
    """Ends and edges of a NeighborRelation."""
    edges = int(r.counts[0])
    rows = [
        ("query rows", f"{r.n_query:,}"),
        ("source rows", f"{r.n_source:,}"),
        ("edges", f"{edges:,}"),
        ("neighbors per query", f"{edges / max(r.n_query, 1):.2f}"),
    ]
    return table("NeighborRelation", rows)


def explanation(e: Explanation) -> str:
    """The sentences of explain()."""
    return f'<pre style="white-space:pre-wrap">{html.escape(str(e))}</pre>'
