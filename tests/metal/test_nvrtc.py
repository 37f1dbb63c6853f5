"""Every captured CUDA text is compiled by NVRTC, for three generations of GPUs.

Kernels of one topic share their header and are compiled together, each in a namespace of its own.
NVRTC is also a second front end for the texts of Metal: behind the prelude they are CUDA.
LATTICE_METAL_FULL=1 compiles all kernels for all architectures.
"""

import functools
import os
import re

import mlx.core as mx
import pytest
from metal.host import nvrtc, standing_in
from metal.host.cuda_text import text_of
from metal.texts import launch_all

FULL = os.environ.get("LATTICE_METAL_FULL") == "1"
# One of each kind; a strided weight is that of a gradient.
KERNELS = """norm_parts norm_combine norm_apply_add_relu norm_slope_parts_relu norm_slope_combine
    norm_slope_apply_relu_keep finite adamw running_statistics conv_tiles_sorted96 outer_tiles96
    _norm_add_relu _strided outer_tiles32x32_same attention_tile attention_dq attention_dkv"""
BODY = "namespace mlx::core::cu {\n\nnamespace cg"


@functools.cache
def captured():
    """Header -> kernels, of all that the library launches."""
    if nvrtc.missing():
        pytest.skip(nvrtc.missing())
    topics = {}

    def host(launch, inputs):
        text = text_of(launch, inputs)
        at = text.index(BODY)
        topics.setdefault(text[:at], {})[text[at:]] = launch.name
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]

    with standing_in(host, "cuda"):
        launch_all("cuda")
    return topics


def together(header, kernels):
    """One program of many kernels."""
    spaces = [
        k.replace(
            "namespace mlx::core::cu {", f"namespace mlx::core::cu {{ namespace k{i} {{", 1
        ).removesuffix("} // namespace mlx::core::cu\n")
        + "}}\n"
        for i, k in enumerate(kernels)
    ]
    return header + "".join(spaces)


def test_all_topics_were_captured():
    topics = captured()
    assert len(topics) >= 7
    assert sum(len(kernels) for kernels in topics.values()) > 150
    names = " ".join(name for kernels in topics.values() for name in kernels.values())
    for kernel in KERNELS.split():
        assert kernel in names, kernel


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_text_compiles(architecture):
    """Without a warning; a 16-bit tile holds tensor instructions and spills nothing."""
    topics = captured()
    if architecture not in nvrtc.architectures():
        pytest.skip(f"this NVRTC does not know {architecture}")
    step = 1 if FULL or architecture == "sm_80" else 5
    for header, kernels in topics.items():
        chosen = list(kernels)[::step]
        log, cubin = nvrtc.compile_text(together(header, chosen), architecture)
        assert cubin and not log.strip(), f"{kernels[chosen[0]]} and others:\n{log[:3000]}"


def test_a_text_alone_is_what_mlx_compiles():
    """One kernel as it is, with the real <cooperative_groups.h> and cuda::std of MLX's header."""
    header, kernels = next(iter(captured().items()))
    log, cubin = nvrtc.compile_text(header + next(iter(kernels)), "sm_80", whole=True)
    assert cubin, log[:3000]


MISTAKES = {
    "wrong word": ("__syncthreads();", "__syncthread();", "undefined"),
    "unknown instruction": ("m16n8k8.row.col.f32.f16", "m16n8k9.row.col.f32.f16", "Unknown"),
    "write to an input": (
        "const int first = rows.first(",
        "arrays.x[0] = 1; const int first = rows.first(",
        "const",
    ),
    "too much shared memory": ("memory[lattice::", "memory[100 * lattice::", "too much shared"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_errors(name):
    old, new, message = MISTAKES[name]
    header, kernels = next(
        (h, k)
        for h, ks in captured().items()
        for k in ks
        if old in h + k and "__half" in k and "conv_tiles" in k
    )
    log, cubin = nvrtc.compile_text((header + kernels).replace(old, new), "sm_80")
    assert not cubin and re.search(message, log), log[:2000]
