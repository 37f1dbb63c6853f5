"""Runs Metal kernels on the CPU.

`with MetalHost() as host:` stands in for the GPU inside the block.

The text is exactly what MLX would compile on a Mac. See docs/metal.md for what this proves and what
not.
"""

from .compiler import CompileError, missing
from .host import CudaHost, MetalError, MetalHost
from .launch import standing_in

__all__ = ["CompileError", "CudaHost", "MetalError", "MetalHost", "missing", "standing_in"]
