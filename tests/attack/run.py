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
BATCH = 5000  # a child needs about two seconds before its first call


def watch(child, record, limit):
    """How the child ended. One whose record has not grown for `limit` seconds is killed."""
    size, since = 0, time.monotonic()
    while True:
        try:
            return f"the process ended with status {child.wait(timeout=1)}"
        except subprocess.TimeoutExpired:
            pass
        if os.path.getsize(record) != size:
            size, since = os.path.getsize(record), time.monotonic()
        elif time.monotonic() - since > limit:
            child.kill()
            child.wait()
            return f"the process hung for {limit} s"


def batch(seed, first, count, memory, limit):
    """The findings of `count` calls; a call that ends the child is followed by another child."""
    findings, at = [], first
    while at < first + count:
        with (
            tempfile.NamedTemporaryFile("r", suffix=".txt") as record,
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            tempfile.TemporaryDirectory() as folder,
        ):
            command = [sys.executable, str(HERE / "child.py"), "--seed", str(seed)]
            command += ["--first", str(at), "--count", str(first + count - at)]
            command += ["--record", record.name, "--folder", folder, "--memory", str(memory)]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            ended = watch(child, record.name, limit)
            lines = record.read().splitlines()
            errors.seek(0)
            said = errors.read()
        calls = {int(x.split(" ", 2)[1]): x.split(" ", 2)[2] for x in lines if x.startswith("> ")}
        for line in lines:
            if line.startswith("! "):
                index, what = line[2:].split(" ", 1)
                findings.append((int(index), what, calls[int(index)]))
        if "= done" in lines:
            return findings
        if not calls:
            raise SystemExit(f"the worker did not start: {said[-2000:]}")
        last = max(calls)
        findings.append((last, f"{ended}: {said[-1500:]}", calls[last]))
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
    parser.add_argument("--timeout", type=int, default=600, help="seconds of a call")
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
