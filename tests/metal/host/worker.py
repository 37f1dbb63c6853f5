"""The process that runs kernels of one variant, and the memory shared with it."""

import atexit
import contextlib
import mmap
import os
import select
import subprocess
import tempfile

import numpy as np

_GAP = 1 << 16  # between buffers: an access past the end of one is in none
_ORDERS = {"forward": 0, "reverse": 1, "random": 2}


class Crash(Exception):
    """The worker ended: by AddressSanitizer, by a signal, or because it took too long."""


def _ends(array, place):
    """What is copied of an array, and where to: of a far one (far.py) only its tail."""
    tail = getattr(array, "tail", array)
    return tail, place + array.nbytes - tail.nbytes


class Worker:
    def __init__(self, program):
        self._program = program
        self._process = self._memory = None
        atexit.register(self.close)

    def run(self, kernel, grid, group, buffers, threadgroup, timeout, order="forward", **numbers):
        """buffers: (name, array, writable, filled). numbers: seed, fails, layout, last.

        Returns (the writable ones, mistakes, counts).
        """
        if self._process is None:
            self._start()
        lines = [f"kernel {kernel}", "grid {} {} {}".format(*grid), "group {} {} {}".format(*group)]
        lines += [f"order {_ORDERS[order]}", *(f"{name} {n}" for name, n in numbers.items())]
        lines += [f"threadgroup {name} {offset} {size}" for name, offset, size in threadgroup]
        places, end = [], _GAP
        for _name, array, _writable, _filled in buffers:
            places.append(end)
            end += -(-array.nbytes // 4096) * 4096 + _GAP
        if end > len(self._memory):
            self._grow(end)
        for place, (name, array, writable, filled) in zip(places, buffers):
            ends, at = _ends(array, place)
            memory = np.frombuffer(self._memory, np.uint8, ends.nbytes, at)
            memory[:] = ends.reshape(-1).view(np.uint8) if filled else 0xFF
            lines.append(
                f"buffer {name} {place} {array.nbytes} {array.itemsize} "
                f"{int(writable)} {int(filled)}"
            )
        self._say("\n".join([*lines, "run"]))
        mistakes, counts = self._answer(timeout)
        outputs = []
        for place, (_name, array, writable, _filled) in zip(places, buffers):
            if writable:
                ends, at = _ends(array, place)
                found = np.frombuffer(self._memory, ends.dtype, ends.size, at)
                outputs.append(found.reshape(ends.shape).copy())
        return outputs, mistakes, counts

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._errors.close()
            os.close(self._descriptor)
        self._process = self._memory = None

    def _start(self):
        self._descriptor = os.memfd_create("metal")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (close() closes it)
        environment = dict(
            os.environ,
            ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0",
            ASAN_SYMBOLIZER_PATH="/usr/bin/llvm-symbolizer-19",
        )
        self._process = subprocess.Popen(
            [str(self._program), str(self._descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=[self._descriptor],
            env=environment,
        )
        self._memory = b""
        self._rest = b""
        self._grow(1 << 22)

    def _grow(self, size):
        size = -(-size // (1 << 22)) * (1 << 22)
        os.ftruncate(self._descriptor, size)
        self._memory = mmap.mmap(self._descriptor, size)
        self._say(f"memory {size}")

    def _say(self, text):
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail(None)

    def _answer(self, timeout):
        lines = []
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                if line.startswith(b"done "):
                    return lines, [int(n) for n in line.split()[1:]]
                lines.append(line.decode())
            ready, _, _ = select.select([self._process.stdout], [], [], timeout)
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else None
            if more:
                self._rest += more
                continue
            self._fail(
                f"no end after {timeout} s: threads wait for each other?" if more is None else None
            )

    def _fail(self, why):
        if why is None:
            code = self._process.wait()
            self._errors.seek(0)
            why = self._errors.read().strip() or f"ended with {code} (a signal when negative)"
        self.close()
        raise Crash(why)
