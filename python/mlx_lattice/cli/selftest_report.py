"""The result of a self test as a file to send: machine, versions, errors, times of each route."""

from __future__ import annotations

import json
import os
import platform
import time
from typing import Any

import mlx.core as mx

from .. import backend_info
from .._explain import SelftestReport
from ..io.atomic_files import write_bytes


def write_report(report: SelftestReport, path: str | os.PathLike[str]) -> None:
    """Text, or JSON when the name ends in .json."""
    content = describe(report)
    text = json.dumps(content, indent=1) + "\n" if str(path).endswith(".json") else _text(content)
    write_bytes(path, text.encode())


def describe(report: SelftestReport) -> dict[str, Any]:
    """Machine, library and one entry for each route; failed cases with what went wrong."""
    gpu = mx.device_info(mx.gpu) if mx.is_available(mx.gpu) else None
    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu": mx.device_info(mx.cpu),
        "gpu": gpu,
    }
    entries = []
    for (operation, device, route), rows in report.routes.items():
        entry = {"operation": operation, "device": device, "route": route, "cases": len(rows)}
        entry["worst_error"] = max(r.error for r in rows)
        entry["seconds"] = sum(r.seconds for r in rows)
        entry["fastest_seconds"] = min(r.seconds for r in rows)
        entry["failed"] = [
            {"case": r.label, "error": r.error, "failure": r.failure}
            for r in rows
            if not r.ok and not r.unsupported
        ]
        entry["unsupported"] = sum(r.unsupported for r in rows)
        entries.append(entry)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return {
        "made": made,
        "ok": report.ok,
        "machine": machine,
        "library": backend_info(),
        "routes": entries,
    }


def _text(content: dict[str, Any]) -> str:
    lines = [f"made: {content['made']}", f"ok: {content['ok']}"]
    for part in ("machine", "library"):
        lines += [f"{part}.{key}: {value}" for key, value in content[part].items()]
    one, two = (
        max((len(e[key]) for e in content["routes"]), default=9) for key in ("operation", "route")
    )
    lines += [
        "",
        f"{'operation':{one}}  {'device':6}  {'route':{two}}  {'cases':>6} {'worst error':>12} "
        f"{'seconds':>9} {'fastest':>9}",
    ]
    for e in content["routes"]:
        times = f"{e['seconds']:9.3f} {e['fastest_seconds']:9.6f}"
        lines.append(
            f"{e['operation']:{one}}  {e['device']:6}  {e['route']:{two}}  {e['cases']:6} "
            f"{e['worst_error']:12.3f} {times}"
        )
        lines += [f"    FAILED {f['case']}: {f['failure'] or f['error']}" for f in e["failed"]]
    lines += [
        "",
        "worst error: in units of the tolerance; at most 1 is right.",
        "seconds: all cases, compiling included; fastest: one case.",
    ]
    return "\n".join(lines) + "\n"
