"""Compiles CUDA text with NVRTC, which needs no GPU.

NVRTC and the headers come from PyPI (nvidia-cuda-nvrtc, -runtime, -crt, -cccl) or from a CUDA
toolkit. Of MLX's own headers only what a kernel of this library reads is here.
"""

import ctypes
import functools
import os
import sysconfig
from pathlib import Path

# As in MLX's header of this name, which is inside its library.
WHOLE = {
    "mlx/backend/cuda/device/utils.cuh": """
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cuda/std/tuple>
namespace mlx::core::cu {
using Shape = cuda::std::array<int32_t, 10>;
using Strides = cuda::std::array<int64_t, 10>;
}
"""
}
# The same for our kernels, without the headers of CCCL: 0.2 s for a kernel in place of 1.5 s.
SHORT = {
    "mlx/backend/cuda/device/utils.cuh": """
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
namespace mlx::core::cu {
template <typename T>
struct Ten {
  T v[10];
  T operator[](int i) const { return v[i]; }
};
using Shape = Ten<int32_t>;
using Strides = Ten<int64_t>;
}
""",
    "cooperative_groups.h": "namespace cooperative_groups {}\n",
}
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
ARCHITECTURES = ("sm_80", "sm_90", "sm_120")


def _places():
    """(library, include folders) that may be there."""
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots = [site / "cu13", *(Path(home) for home in homes if home)]
    for root in roots:
        for folder in ("lib", "lib64"):
            for name in _NAMES:
                include = root / "include"
                yield root / folder / name, [include, include / "cccl"]


@functools.cache
def _found():
    for library, include in _places():
        if library.is_file() and (include[0] / "cuda_fp16.h").is_file():
            return ctypes.CDLL(str(library)), include
    return None


def missing():
    """Why nothing can be compiled here, or None."""
    if _found():
        return None
    return "found no NVRTC (pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl)"


@functools.cache
def architectures():
    """Those of ARCHITECTURES that this NVRTC knows."""
    lib, _ = _found()
    n = ctypes.c_int()
    lib.nvrtcGetNumSupportedArchs(ctypes.byref(n))
    numbers = (ctypes.c_int * n.value)()
    lib.nvrtcGetSupportedArchs(numbers)
    return [name for name in ARCHITECTURES if int(name[3:]) in numbers[:]]


def _log(lib, program):
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    return log.value.decode()


def compile_text(text, architecture, *, whole=False):
    """(log, cubin) with the options of MLX; the cubin is empty when there are errors.

    Whole: behind all that MLX's header includes.
    """
    lib, include = _found()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    headers = WHOLE if whole else SHORT
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
    bodies = (ctypes.c_char_p * len(headers))(*(body.encode() for body in headers.values()))
    lib.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernel.cu", len(headers), bodies, names
    )
    options = ["--device-as-default-execution-space", f"--gpu-architecture={architecture}"]
    options += [f"--include-path={folder}" for folder in include]
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = lib.nvrtcCompileProgram(program, len(options), encoded)
    log, cubin = _log(lib, program), b""
    if status == 0:
        lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetCUBIN(program, buffer)
        cubin = buffer.raw
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return log, cubin
