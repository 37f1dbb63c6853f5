"""The text that MLX 0.32.4 compiles for CUDA, written from what the library hands to cuda_kernel.

MLX writes it only where there is CUDA. The frame was compared with the strings of MLX's library for
CUDA: header, signature, constants, body. docs/cuda.md says how.
"""

import re

import mlx.core as mx

HEADER = '#include "mlx/backend/cuda/device/utils.cuh"\n\n#include <cooperative_groups.h>\n\n'
INF = "#define inf cuda::std::numeric_limits<float>::infinity()\n\n"
_TYPES = {
    mx.float32: "float",
    mx.float16: "__half",
    mx.bfloat16: "__nv_bfloat16",
    mx.int32: "int32_t",
    mx.uint32: "uint32_t",
    mx.int64: "int64_t",
    mx.uint8: "uint8_t",
    mx.bool_: "bool",
}


def _constant(name, value):
    if isinstance(value, bool):
        return f"  constexpr bool {name} = {str(value).lower()};\n"
    if isinstance(value, int):
        return f"  constexpr int {name} = {value};\n"
    return f"  using {name} = {_TYPES[value]};\n"


def _suffix(value):
    if isinstance(value, bool):
        return "_t" if value else "_f"
    return f"_{value}" if isinstance(value, int) else "_" + str(value).split(".")[-1]


def parameters(launch, inputs):
    """(type, name) of each argument of the kernel, in order."""
    for name, array, (shape, strides, ndim) in zip(
        launch.input_names, inputs, launch.shape_info, strict=True
    ):
        yield f"const {_TYPES[array.dtype]}*", name
        if array.ndim and shape:
            yield "const __grid_constant__ Shape", f"{name}_shape"
        if array.ndim and strides:
            yield "const __grid_constant__ Strides", f"{name}_strides"
        if array.ndim and ndim:
            yield "const __grid_constant__ int", f"{name}_ndim"
    for name, (_, dtype) in zip(launch.output_names, launch.outputs, strict=True):
        yield f"{_TYPES[dtype]}*", name


def kernel_name(launch):
    return f"custom_kernel_{launch.name}" + "".join(_suffix(v) for _, v in launch.template_args)


def text_of(launch, inputs):
    """All that NVRTC gets."""
    arguments = ",\n".join(f"    {kind} {name}" for kind, name in parameters(launch, inputs))
    constants = "".join(_constant(*pair) for pair in launch.template_args)
    return (
        f"{HEADER}{INF}{launch.text}namespace mlx::core::cu {{\n\n"
        "namespace cg = cooperative_groups;\n\n"
        f"__global__ void {kernel_name(launch)}(\n{arguments}) {{\n{constants}\n"
        f"{launch.source}\n}}\n\n}} // namespace mlx::core::cu\n"
    )


def entry(launch, inputs):
    """The function through which the worker calls the kernel.

    Each argument is a buffer; shapes and numbers are read from theirs.
    """
    arguments = []
    for i, (kind, _name) in enumerate(parameters(launch, inputs)):
        kind = kind.replace("const __grid_constant__ ", "const ")
        value = f"({kind})buffers[{i}]" if kind.endswith("*") else f"*({kind}*)buffers[{i}]"
        arguments.append(value)
    return (
        '\n# 1 "entry"\nnamespace mlx::core::cu {\nextern "C" MSL_UNSEEN\n'
        "void msl_entry(size_t msl_buffers, size_t) {\n"
        "  const size_t* buffers = (const size_t*)msl_buffers;\n"
        f"  {kernel_name(launch)}({', '.join(arguments)});\n}}\n}}\n"
    )


# ---- what clang cannot compile for a CPU
_SHARED = re.compile(r"__shared__ __align__\(16\) ([^;\[]+?) (\w+)\[([^;]*)\];")
_ASM = re.compile(
    r'asm volatile\(\s*((?:"[^"]*"\s*)+):\s*((?:"\+f"\([^;]*?\),?\s*)+):\s*'
    r'((?:"r"\([^;]*?\),?\s*)+)\);'
)
_MMA = re.compile(
    r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.(f16|bf16)\.\1\.f32 "
    r"\{(%\d),(%\d),(%\d),(%\d)\}, \{(%\d),(%\d)\}, \{(%\d)\}, \{\2,\3,\4,\5\};"
)


class UnknownInstruction(Exception):
    """PTX that the host does not know."""


def _instruction(match):
    text = "".join(re.findall(r'"([^"]*)"', match[1]))
    found = _MMA.fullmatch(text)
    if not found:
        raise UnknownInstruction(f"unknown PTX instruction: {text}")
    operands = re.findall(r'"\+f"\((.*?)\)(?=,|\s|$)', match[2] + " ")
    operands += re.findall(r'"r"\((.*?)\)(?=,|\s|$)', match[3] + " ")
    kind = {"f16": "__half", "bf16": "__nv_bfloat16"}[found[1]]
    chosen = [operands[int(n[1:])] for n in found.groups()[1:]]
    return f"cuda_mma_m16n8k8<{kind}>({', '.join(chosen)});" + "\n" * match[0].count("\n")


def for_cpu(text, guard):
    """`text` with shared memory in static variables and PTX as calls; lines stay."""

    def shared(match):
        kind, name, length = match.groups()
        return (
            f"typedef {kind} msl_type_{name}[{length}]; "
            '__attribute__((aligned(16), no_sanitize("address"))) static unsigned char '
            f"msl_memory_{name}[sizeof(msl_type_{name}) + {guard}]; "
            f"msl_type_{name}& {name} = *(msl_type_{name}*)msl_memory_{name};"
        )

    return _ASM.sub(_instruction, _SHARED.sub(shared, text))
