"""Pass 2 on the processes of a Dask cluster: a lost worker's tiles run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io._check import require
from ..training.progress import Progress

if TYPE_CHECKING:
    from .predict import Prediction

_runners: dict[str, Any] = {}  # the runners of this worker process, by folder


def run_tile(weights: str, work: str, memory: int, i: int) -> int:
    """Tile i of the run in a folder; called on a worker. Returns its voxels."""
    from ..cli.run_folder import RunFolder
    from ..nn import pack
    from ..programs.tiles import tile_program
    from .manifest import Run
    from .tiles import TilePass, cells_from

    manifest = Run(Path(work)).read()
    if work not in _runners:
        import mlx.core as mx

        mx.set_cache_limit(64 << 20)
        model, pipeline = RunFolder.of(weights).load()
        program = tile_program(pack(model.eval()), pipeline.channels)
        _runners[work] = TilePass(program, Path(work), cells_from(manifest), manifest["side"])
    low, high = manifest["tiles"][i]
    return int(_runners[work].run(i, tuple(low), tuple(high)))


def run_on_cluster(
    prediction: Prediction, manifest: dict[str, Any], workers: int | None, scheduler: str | None
) -> None:
    """Runs the tiles that are left; on `workers` local processes, or on a cluster by its address.

    Raises:
        ImportError: Dask is not installed.
    """
    distributed = require("distributed", "cluster")
    job = prediction.job
    if scheduler:
        client = distributed.Client(scheduler)
    else:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        client = distributed.Client(cluster)
    with client:
        print(f"dashboard: {client.dashboard_link}", flush=True)
        given = (str(job.weights.absolute()), str(job.work.absolute()), job.memory)
        futures = [
            client.submit(run_tile, *given, i, retries=3, pure=False)
            for i in prediction.left(manifest)
        ]
        with Progress("pass 2 of 3, tiles", len(futures), "tiles") as bar:
            for future in distributed.as_completed(futures):
                future.result()
                bar.advance()
    if not scheduler:
        cluster.close()
