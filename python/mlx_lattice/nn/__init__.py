"""Modules on `mlx.nn.Module`; they train with `mlx.optimizers` and save with `save_weights`."""

from ._attention import SerializedAttention, WindowAttention
from ._conditional import ConditionalNorm
from ._conv import (
    Conv3d,
    ConvTranspose3d,
    GenerativeConvTranspose3d,
    NormalizedConvTranspose3d,
    NormalizedGenerativeConvTranspose3d,
    NormalizedSubmConv3d,
    SubmConv3d,
)
from ._features import (
    GELU,
    BatchNorm,
    Dropout,
    LayerNorm,
    LeakyReLU,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)
from ._linear import Linear, pack
from ._neighbor_attention import NeighborAttention
from ._pool import (
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    MaxPool3d,
    Pool3d,
    PoolTranspose3d,
    SumPool3d,
    TrilinearUpsample3d,
)
from ._quantized import (
    QuantizedConv3d,
    QuantizedConvTranspose3d,
    QuantizedGenerativeConvTranspose3d,
    QuantizedLinear,
    QuantizedSubmConv3d,
)
from ._transformer import (
    MLP,
    ConvPositionEncoding,
    DropPath,
    GridPool,
    GridUnpool,
    TransformerBlock,
)

__all__ = [
    "GELU",
    "MLP",
    "AvgPool3d",
    "BatchNorm",
    "ConditionalNorm",
    "Conv3d",
    "ConvPositionEncoding",
    "ConvTranspose3d",
    "DropPath",
    "Dropout",
    "GenerativeConvTranspose3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "GridPool",
    "GridUnpool",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool3d",
    "NeighborAttention",
    "NormalizedConvTranspose3d",
    "NormalizedGenerativeConvTranspose3d",
    "NormalizedSubmConv3d",
    "Pool3d",
    "PoolTranspose3d",
    "QuantizedConv3d",
    "QuantizedConvTranspose3d",
    "QuantizedGenerativeConvTranspose3d",
    "QuantizedLinear",
    "QuantizedSubmConv3d",
    "RMSNorm",
    "ReLU",
    "SerializedAttention",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "SubmConv3d",
    "SumPool3d",
    "Tanh",
    "TransformerBlock",
    "TrilinearUpsample3d",
    "WindowAttention",
    "pack",
]

# Names of other libraries, and what to write here.
_ELSEWHERE = {
    "SubMConv3d": "SubmConv3d",
    "SparseConv3d": "Conv3d; its output rows differ, see docs/from/spconv.md",
    "SparseInverseConv3d": "ConvTranspose3d, called with the fine tensor: up(x, skip)",
    "SparseSequential": "mlx.nn.Sequential",
    "SparseMaxPool3d": "MaxPool3d",
    "MinkowskiConvolution": "SubmConv3d at stride 1, Conv3d otherwise",
    "MinkowskiConvolutionTranspose": "ConvTranspose3d, called with the skip: up(x, skip)",
    "MinkowskiGenerativeConvolutionTranspose": "GenerativeConvTranspose3d",
    "MinkowskiBatchNorm": "BatchNorm",
    "MinkowskiReLU": "ReLU",
    "MinkowskiLinear": "Linear",
    "MinkowskiSumPooling": "SumPool3d",
    "MinkowskiAvgPooling": "AvgPool3d",
    "MinkowskiMaxPooling": "MaxPool3d",
    "MinkowskiGlobalAvgPooling": "GlobalAvgPool",
}


def __getattr__(name: str) -> object:
    """Raises AttributeError; names of spconv and MinkowskiEngine get a hint."""
    told = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(f"{told}; here it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else told)
