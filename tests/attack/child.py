"""One worker: the calls of a seed from number `first` on. The record gets a call before it runs.

Lines of the record: "> index call" before a call, "! index finding" after a finding. The parent
tells a crash or a hang by the last line that begins with ">".
"""

import argparse
import os
import random
import resource
import signal
import warnings
from pathlib import Path

import mlx.core as mx
import numpy as np
from calls import arguments, changed, follow, parameters, public
from mlx_lattice.io._check import FileError
from values import prepare_files, told

ALLOWED = (ValueError, TypeError, OverflowError, IndexError, MemoryError, NotImplementedError)
SECONDS = 60


def finite(value) -> bool:
    """Whether an argument is finite and small: then NaN in a result is a finding."""
    if isinstance(value, mx.array):
        if value.dtype == mx.complex64:
            return False
        a = np.array(value.astype(mx.float32)) if mx.issubdtype(value.dtype, mx.floating) else None
        return a is None or bool(np.isfinite(a).all() and (not a.size or np.abs(a).max() < 1e3))
    if isinstance(value, float):
        return abs(value) < 1e3
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fc":
            return True
        return bool(np.isfinite(value).all() and (not value.size or np.abs(value).max() < 1e3))
    if isinstance(value, (list, tuple)):
        return all(map(finite, value))
    if isinstance(value, (str, Path)):  # a file's bytes are any numbers
        return not os.path.exists(value)
    return not isinstance(value, int) or abs(value) < 1e3


def modest(value) -> bool:
    """Whether an argument asks for little memory."""
    if isinstance(value, (list, tuple, set)):
        return all(map(modest, value))
    if isinstance(value, mx.array) and value.size:
        kind = mx.float32 if mx.issubdtype(value.dtype, mx.inexact) else value.dtype
        return bool((mx.abs(value.astype(kind).astype(mx.float32)) < 1e6).all().item())
    return not isinstance(value, (int, float)) or abs(value) < 1e6


def has_nan(value) -> bool:
    feats = getattr(value, "feats", value)
    if isinstance(feats, (list, tuple)):
        return any(map(has_nan, feats))
    if not isinstance(feats, mx.array) or not mx.issubdtype(feats.dtype, mx.floating):
        return False
    return bool(mx.isnan(feats.astype(mx.float32)).any().item()) if feats.size else False


def complaint(error, names, small) -> str:
    """What is wrong with an exception; empty when nothing is."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, OSError) and (text.startswith("[") or (error.errno and error.filename)):
        return ""  # ours, or the system's own words with the file
    if isinstance(error, ImportError) and "pip install" in text:
        return ""
    if isinstance(error, FileError) and os.path.exists(text.split(": ")[0]):
        return ""  # the file that a folder holds
    if not isinstance(error, ALLOWED):
        return f"foreign exception {kind}: {text[:300]}"
    if isinstance(error, MemoryError) and small:
        return f"absurd allocation for small arguments: {text[:300]}"
    if isinstance(error, (MemoryError, NotImplementedError)):
        return ""
    told_by_python = "argument" in text or "no constructor defined" in text
    if not text.strip() or not (
        text.startswith("[") or told_by_python or any(n in text for n in names)
    ):
        return f"{kind} names neither operation nor argument: {text[:300]}"
    return ""


def late(*_):
    raise TimeoutError(f"still running after {SECONDS} s")


def one(index, seed, callables, record):
    r = random.Random(f"{seed}:{index}")
    np.random.seed(index % 2**31)
    mx.random.seed(index)
    name, function = r.choice(callables)
    args, kwargs = arguments(function, r)
    text = ", ".join([*map(told, args), *(f"{k}={told(v)}" for k, v in kwargs.items())])
    record.write(f"> {index} {name}({text})\n")
    record.flush()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # seconds of CPU time: a busy machine is no hang
    given = [*args, *kwargs.values()]
    names = [*(p[0] for p in parameters(function)), name.split(".")[-1]]
    names += [v for v in given if isinstance(v, str) and len(v) > 2]  # a file
    clean, small = all(map(finite, given)), all(map(modest, given))
    eps = kwargs.get("eps", 1)  # with 0 a constant row has no norm
    zero = (
        mx.all(eps == 0).item()
        if isinstance(eps, mx.array)
        else isinstance(eps, (int, float)) and eps == 0
    )
    clean = clean and not zero
    clean = clean and name != "ops.crop_points"  # NaN marks the points outside of the box
    wrapped = changed(function, args, kwargs, r) if r.random() < 0.2 else None
    steps = [(name, lambda: function(*args, **kwargs), ())]
    if wrapped is not None:
        steps = [(f"{wrapped[0]} of {name}", wrapped[1], ())]
    result, made = None, False
    while steps:
        step, run, more = steps.pop(0)
        try:
            result = run()
            if clean and wrapped is None and all(map(finite, more)) and has_nan(result):
                record.write(f"! {index} NaN of finite arguments in {step}\n")
            if not made:
                made, steps = True, follow(result, r)
        except RecursionError as error:
            record.write(f"! {index} {step}: RecursionError {error}\n")
        except Exception as error:
            wrong = complaint(error, [*names, step], small and all(map(modest, more)))
            if wrong:
                record.write(f"! {index} {step}: {wrong}\n")
            if not made:
                break
    signal.setitimer(signal.ITIMER_PROF, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--folder", required=True, help="where files are read and written")
    parser.add_argument("--memory", type=int, default=8, help="GiB of address space; 0: no limit")
    a = parser.parse_args()
    if a.memory:
        resource.setrlimit(resource.RLIMIT_AS, (a.memory << 30,) * 2)
    signal.signal(signal.SIGPROF, late)
    warnings.simplefilter("ignore")
    callables = public()
    os.chdir(a.folder)
    prepare_files()
    with open(a.record, "a", encoding="utf-8") as record:
        for index in range(a.first, a.first + a.count):
            one(index, a.seed, callables, record)
        record.write("= done\n")


main()
