"""MSL text to a shared object of the CPU, by clang as C++ for OpenCL.

Everything is kept in build/metal by its content.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import mlx

from . import lint
from .entry import entry
from .rewrite import GUARD, rewrite

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parents[2] / "build" / "metal"
_MLX = Path(next(iter(mlx.__path__))) / "include"
_CLANG = os.environ.get("LATTICE_CLANG", "clang-19")
_LANGUAGE = [
    *(
        "-x",
        "clcpp",
        "-cl-std=clc++2021",
        "-cl-no-stdinc",
        "-nostdinc",
        "-target",
        "x86_64-linux-gnu",
    ),
    *(
        "-Xclang",
        "-cl-ext=+cl_khr_fp16,-cl_khr_fp64,-__opencl_c_fp64",
        "-cl-single-precision-constant",
    ),
    *(
        "-Xclang",
        "-fbfloat16-excess-precision=none",
        "-march=x86-64-v3",
        "-fPIC",
        "-fno-builtin",
    ),
]
_EXACT = ["-ffp-contract=off"]
_QUIET = ["-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops"]
_VARIANTS = {
    "fast": ["-O1", *_EXACT, *_QUIET],
    # As Apple's compiler may: products and sums become one operation.
    "contract": ["-O1", "-ffp-contract=fast", *_QUIET],
    "check": ["-O1", "-g1", "-fsanitize=thread", *_EXACT, *_QUIET],
    "asan": [
        "-O1",
        *_EXACT,
        "-g1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
        *_QUIET,
    ],
}
_RUNTIME = {
    "fast": [],
    "contract": [],
    "check": ["-DMSL_CHECK"],
    "asan": ["-fsanitize=address,undefined"],
}
# Found on a Mac; here all of them are the shim, which is always there.
_HEADERS = [
    "metal_array",
    "metal_atomic",
    "metal_common",
    "metal_compute",
    "metal_geometric",
    "metal_integer",
    "metal_limits",
    "metal_logging",
    "metal_math",
    "metal_numeric",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_stdlib",
    "metal_types",
    "metal_type_traits",
]
# Of Metal 4 only: a text that names the second one is compiled as such.
_TENSOR = "MetalPerformancePrimitives/MetalPerformancePrimitives.h"
_HEADERS_4 = ["metal_tensor", _TENSOR]


def version_of(text):
    """The language version as __METAL_VERSION__ spells it."""
    return 400 if _TENSOR in text else 310


class CompileError(Exception):
    """The text is no MSL: message and line of each mistake."""


def missing():
    """Why kernels cannot be run here, or None."""
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return "the host runs Metal kernels on Linux on x86-64 only"
    tools = [
        t
        for t in (_CLANG, _CLANG.replace("clang", "clang++"), "llvm-symbolizer-19", "nm")
        if not shutil.which(t)
    ]
    return (
        f"not installed: {', '.join(tools)} (Debian: clang-19 libclang-rt-19-dev llvm-19)"
        if tools
        else None
    )


def _run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


def _start(*command):
    return subprocess.Popen(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _must(*command):
    result = _run(*command)
    if result.returncode:
        raise RuntimeError(" ".join(map(str, command)) + "\n" + result.stderr[:4000])
    return result.stdout


def _digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:20]


def _read(*files):
    return "".join(p.read_text(encoding="utf-8") for p in sorted(files))


@functools.cache
def _builtins():
    return _must(_CLANG, "--rtlib=compiler-rt", "--print-libgcc-file-name").strip()


class Toolchain:
    """What all kernels of one variant share.

    The worker, and the shim with MLX's header, compiled once. version: of the language, 310 or 400.
    """

    def __init__(self, variant, version=310):
        self.variant, self._version = variant, version
        self._language = [*_LANGUAGE, f"-DMSL_VERSION={version}"]
        self._flags = [*self._language, *_VARIANTS[variant]]
        text = [*_HERE.glob("shim/*.h"), *_MLX.glob("mlx/backend/metal/kernels/*.h")]
        text += [
            _HERE / f"{name}.py" for name in ("compiler", "entry", "lint", "rewrite", "tokens")
        ]
        self._text = _read(*text)
        self._folder = _CACHE / f"{variant}-{_digest(self._text, self._flags, _CLANG)}"
        if not (self._folder / "prelude.pch").exists():
            self._build_prelude()
        sources = [*_HERE.glob("runtime/*.cpp"), *_HERE.glob("runtime/*.h")]
        self.worker = (
            _CACHE / f"{variant}-worker-{_digest(_read(*sources), _RUNTIME[variant], _CLANG)}"
        )
        if not self.worker.exists():
            self._build_worker()

    def _build_prelude(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        names = self._folder / "names"
        names.mkdir(exist_ok=True)
        for header in [*_HEADERS, *(_HEADERS_4 if self._version >= 400 else [])]:
            (names / header).parent.mkdir(exist_ok=True)
            (names / header).touch()
        prelude = self._folder / "prelude.h"
        prelude.write_text('#include "metal.h"\n#include "mlx/backend/metal/kernels/utils.h"\n')
        find = ["-I", _HERE / "shim", "-I", names, "-I", _MLX]
        own = set(_must(_CLANG, *self._language, "-E", "-dM", os.devnull).splitlines())
        macros = [
            m
            for m in _must(_CLANG, *self._language, *find, "-E", "-dM", prelude).splitlines()
            if m not in own
        ]
        text, _ = rewrite(_must(_CLANG, *self._language, *find, "-E", prelude), own="")
        (self._folder / "prelude.clcpp").write_text(text + "\n" + "\n".join(macros) + "\n")
        pch = self._folder / f"prelude.{os.getpid()}.pch"
        _must(
            _CLANG,
            *self._flags,
            "-w",
            "-c",
            "-Xclang",
            "-emit-pch",
            self._folder / "prelude.clcpp",
            "-o",
            pch,
        )
        pch.rename(self._folder / "prelude.pch")

    def _build_worker(self):
        sources = sorted(_HERE.glob("runtime/*.cpp"))
        built = self.worker.with_suffix(f".{os.getpid()}")
        clangxx = _CLANG.replace("clang", "clang++")
        _must(
            clangxx,
            "-std=c++20",
            "-O2",
            "-g1",
            *_RUNTIME[self.variant],
            "-rdynamic",
            *sources,
            "-ldl",
            "-lm",
            "-o",
            built,
        )
        built.rename(self.worker)

    def compile(self, name, text):
        """(file, buffers, threadgroup variables) of the kernel.

        From the cache when the same text was compiled before.
        """
        stem = self._folder / _digest(name, text)
        note = stem.with_suffix(".json")
        if not note.exists():
            self._compile(name, text, stem)
        facts = json.loads(note.read_text())
        if facts["mistakes"]:
            raise CompileError("\n".join(facts["mistakes"]))
        return stem.with_suffix(".so"), facts["buffers"], facts["threadgroup"]

    def _compile(self, name, text, stem):
        more, buffers = entry(name, text)
        rewritten, found = rewrite(f'# 1 "kernel.metal"\n{text}{more}', own="kernel.metal")
        mistakes = [f"line {line}: {message}" for line, message in found]
        source, built = stem.with_suffix(".clcpp"), stem.with_suffix(f".{os.getpid()}.o")
        source.write_text(rewritten)
        if not mistakes:
            command = [
                _CLANG,
                *self._flags,
                "-I",
                self._folder / "names",
                "-include-pch",
                self._folder / "prelude.pch",
                source,
            ]
            checked = self._start_lint(name, text, command)
            result = _run(*command, "-w", "-c", "-o", built)
            mistakes += errors(result.stderr) if result.returncode else []
            mistakes += [f"line {line}: {message}" for line, message in checked()]
        threadgroup = []
        if not mistakes:
            shared = stem.with_suffix(f".{os.getpid()}.so")
            _must("ld", "-shared", built, _builtins(), "-o", shared)
            for address, size, symbol in re.findall(
                r"(\w+) (\w+) \w (\S*msl_memory_\w+)", _must("nm", "-S", shared)
            ):
                variable = re.search(r"msl_memory_(\w+)", symbol)[1]
                threadgroup.append(
                    [re.sub(r"(E?_\d+)$", "", variable), int(address, 16), int(size, 16) - GUARD]
                )
            shared.rename(stem.with_suffix(".so"))
            built.unlink()
        lines = text.splitlines()
        facts = {
            "mistakes": [quote_line(m, lines) for m in mistakes],
            "buffers": buffers,
            "threadgroup": threadgroup,
        }
        stem.with_suffix(".json").write_text(json.dumps(facts))

    def _start_lint(self, name, text, command):
        """Begins the checks of lint.py, once for all variants.

        A function that waits for what they find.
        """
        note = _CACHE / f"lint-{_digest(self._text)}" / f"{_digest(name, text)}.json"
        if note.exists():
            return lambda: json.loads(note.read_text())
        process = _start(*command, *lint.ARGUMENTS)

        def finish():
            found = lint.mistakes(*process.communicate())
            note.parent.mkdir(exist_ok=True)
            note.write_text(json.dumps(found))
            return found

        return finish


def errors(stderr):
    """Errors of clang in the kernel's text as "line 5: message"."""
    found = re.findall(r"^kernel\.metal:(\d+):\d+: (?:fatal )?error: (.*)$", stderr, re.MULTILINE)
    return [f"line {line}: {message}" for line, message in found] or [stderr[:2000]]


def quote_line(mistake, lines):
    """Adds the text of the first line that is named."""
    match = re.search(r"\bline (\d+)\b", mistake)
    if not match or not 0 < int(match[1]) <= len(lines):
        return mistake
    return f"{mistake}\n    {lines[int(match[1]) - 1].strip()}"
