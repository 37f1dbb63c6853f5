"""CUDA text to a shared object of the CPU, by clang as C++ behind the words of shim_cuda."""

from . import compiler
from .compiler import GUARD, Toolchain
from .cuda_text import UnknownInstruction, for_cpu

_SHIM = compiler.HERE / "shim_cuda"
_LANGUAGE = [
    *("-x", "c++", "-std=c++17", "-nostdinc", "-nostdinc++", "-target", "x86_64-linux-gnu"),
    *("-march=x86-64-v3", "-fPIC", "-fno-builtin", "-fno-exceptions"),
    *("-fno-rtti", "-fno-threadsafe-statics", "-Xclang", "-ffloat16-excess-precision=none"),
]


class CudaToolchain(Toolchain):
    """As Toolchain, for the text of CUDA."""

    flavor = "cuda-"

    def _base(self):
        return _LANGUAGE

    def _sources(self):
        names = ("compiler", "cuda_compiler", "cuda_text")
        return [*_SHIM.rglob("*.h"), *_SHIM.rglob("*.cuh")] + [
            compiler.HERE / f"{name}.py" for name in names
        ]

    def _build_prelude(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "prelude.pch").touch()  # nothing to compile ahead

    def _write(self, name, text, more, source):
        try:
            source.write_text(f'# 1 "kernel.cu"\n{for_cpu(text, GUARD)}{more}')
        except UnknownInstruction as unknown:
            return [str(unknown)]
        return []

    def _command(self, source):
        return [compiler.CLANG, *self._flags, "-I", _SHIM, source]

    def _start_lint(self, name, text, command):
        return lambda: []  # NVRTC is the judge of the language
