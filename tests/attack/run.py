"""`make attack`: hostile calls of every public callable, in child processes.

A seed and a number repeat a finding:

    python tests/attack/run.py --calls 2000
    python tests/attack/run.py --seed 1 --first 4711 --calls 1

Findings are a crash, a hang, a foreign exception type, a message without a name, an absurd
allocation, and NaN of finite arguments. Some calls run under grad, jvp, vmap or compile.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BATCH = 500


def batch(seed, first, count, memory, limit):
    """(findings, calls done): runs a child again behind each call that ended it."""
    findings, at = [], first
    while at < first + count:
        with (
            tempfile.NamedTemporaryFile("r", suffix=".txt") as record,
            tempfile.TemporaryDirectory() as folder,
        ):
            command = [
                sys.executable,
                str(HERE / "child.py"),
                "--seed",
                str(seed),
                "--first",
                str(at),
            ]
            command += ["--count", str(first + count - at), "--record", record.name]
            command += ["--folder", folder]
            child = subprocess.Popen(
                [*command, "--memory", str(memory)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            try:
                _, errors = child.communicate(timeout=limit)
                ended = f"the process ended with status {child.returncode}"
            except subprocess.TimeoutExpired:
                child.kill()
                _, errors = child.communicate()
                ended = f"the process hung for {limit} s"
            lines = record.read().splitlines()
        calls = {int(x.split(" ", 2)[1]): x.split(" ", 2)[2] for x in lines if x.startswith("> ")}
        for line in lines:
            if line.startswith("! "):
                index, what = line[2:].split(" ", 1)
                findings.append((int(index), what, calls[int(index)]))
        if "= done" in lines:
            return findings
        if not calls:
            raise SystemExit(f"the worker did not start: {errors.decode()[-2000:]}")
        last = max(calls)
        findings.append((last, f"{ended}: {errors.decode()[-1500:]}", calls[last]))
        at = last + 1
    return findings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--memory", type=int, default=8, help="GiB of a child; 0 under AddressSanitizer"
    )
    parser.add_argument("--timeout", type=int, default=600, help="seconds of a batch")
    a = parser.parse_args()
    begin, found = time.monotonic(), []
    for first in range(a.first, a.first + a.calls, BATCH):
        count = min(BATCH, a.first + a.calls - first)
        for index, what, call in batch(a.seed, first, count, a.memory, a.timeout):
            found.append(index)
            print(
                f"FINDING --seed {a.seed} --first {index} --calls 1\n  {call}\n  {what}", flush=True
            )
    seconds = time.monotonic() - begin
    print(f"{a.calls} calls, seed {a.seed}, {len(found)} findings, {seconds:.0f} s")
    return int(bool(found))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(HERE), os.environ.get("PYTHONPATH")])
    )
    sys.exit(main())
