"""Cases of convolutions, relations, pooling, features and modules: (name, function)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from inputs import DTYPES, numbers, tensor, weights_of, with_gradient
from mlx_lattice import models, ops
from mlx_lattice import nn as lnn


def convolutions() -> Any:
    for word, dtype in DTYPES.items():
        for c, m, groups in ((16, 32, 1), (3, 20, 1), (64, 64, 1), (16, 16, 4)):
            x = tensor(4000, c, dtype=dtype)
            bias = numbers(m, seed=9, dtype=dtype)
            at = f"{word}/{c}x{m}/{groups}"

            def weight(k: int, c: int = c, m: int = m, groups: int = groups, d: Any = dtype) -> Any:
                return 0.1 * numbers(m, k, k, k, c // groups, seed=5, dtype=d)

            def subm(f: Any, w: Any, b: Any, x: Any = x, groups: int = groups) -> Any:
                return ops.subm_conv3d(x.with_feats(f), w, b, groups=groups).feats

            def strided(f: Any, w: Any, b: Any, x: Any = x, groups: int = groups) -> Any:
                t = x.with_feats(f)
                return ops.conv3d(t, w, b, kernel_size=2, stride=2, groups=groups).feats

            def odd(f: Any, w: Any, b: Any, x: Any = x, groups: int = groups) -> Any:
                t = x.with_feats(f)
                return ops.conv3d(t, w, b, stride=2, padding=1, groups=groups).feats

            def grown(f: Any, w: Any, b: Any, x: Any = x, groups: int = groups) -> Any:
                t = x.replace(stride=2).with_feats(f)
                return ops.generative_conv_transpose3d(t, w, b, groups=groups).feats

            def up(f: Any, w: Any, b: Any, x: Any = x, groups: int = groups) -> Any:
                t = x.replace(stride=2).with_feats(f)
                return ops.conv_transpose3d(t, w, b, groups=groups).feats

            for name, run, k in (
                ("subm", subm, 3),
                ("strided", strided, 2),
                ("odd", odd, 3),
                ("grown", grown, 2),
                ("up", up, 2),
            ):
                yield from with_gradient(f"conv/{name}/{at}", run, x.feats, weight(k), bias)
    x = tensor(3000, 24)
    w, f = 0.1 * numbers(32, 24, seed=8), x.feats
    yield from with_gradient("linear", lambda f, w: ops.linear(x.with_feats(f), w).feats, f, w)
    yield from with_gradient("linear_features", ops.linear_features, f, w)
    for bits in (4, 8):
        packed = ops.quantize_weight(numbers(32, 3, 3, 3, 64, seed=4), bits=bits)
        flat = ops.quantize_weight(numbers(40, 64, seed=4), bits=bits)
        y = tensor(3000, 64)
        yield f"packed/{bits}", lambda q=packed: ops.dequantize_weight(q)
        yield f"packed/{bits}/subm", lambda q=packed, y=y: ops.subm_conv3d(y, q)
        yield f"packed/{bits}/conv", lambda q=packed, y=y: ops.conv3d(y, q, stride=2, padding=1)
        yield f"packed/{bits}/linear", lambda q=flat, y=y: ops.linear(y, q)
    down = ops.conv3d(x, 0.1 * numbers(8, 2, 2, 2, 24), kernel_size=2, stride=2)
    w2, w3 = 0.1 * numbers(24, 2, 2, 2, 8, seed=6), 0.1 * numbers(12, 3, 3, 3, 24, seed=7)
    yield "conv/back_to", lambda: ops.conv_transpose3d(down, w2, coordinates=x)
    yield "conv/target", lambda: ops.conv3d(x, w3, coordinates=tensor(2000, 1, seed=11))
    yield "conv/dilated", lambda: ops.subm_conv3d(x, w3, dilation=2)
    yield "normalized/subm", lambda: ops.normalized_subm_conv3d(x, mx.abs(w3))
    yield "normalized/up", lambda: ops.normalized_conv_transpose3d(down, mx.abs(w2))
    yield (
        "normalized/grown",
        lambda: ops.normalized_generative_conv_transpose3d(down, mx.abs(w2)),
    )


def relations() -> Any:
    x, y = tensor(3000, 1), tensor(2000, 1, seed=21)
    coarse = x.replace(stride=2)
    for name, run in {
        "submanifold": lambda: ops.submanifold_kernel_relation(x),
        "forward": lambda: ops.kernel_relation(x, 3, 2, 1),
        "target": lambda: ops.target_kernel_relation(x, y),
        "transposed": lambda: ops.transposed_kernel_relation(coarse),
        "target_transposed": lambda: ops.target_transposed_kernel_relation(coarse, x),
        "generative": lambda: ops.generative_kernel_relation(coarse),
        "of_coords": lambda: [
            ops.build_submanifold_kernel_relation(x.coords),
            ops.build_kernel_relation(x.coords, 2, 2),
            ops.build_target_kernel_relation(x.coords, y.coords),
            ops.build_transposed_kernel_relation(x.coords),
            ops.build_target_transposed_relation(x.coords, y.coords),
            ops.build_generative_relation(x.coords),
        ],
    }.items():
        yield "relation/" + name, run
    r = ops.submanifold_kernel_relation(x)
    yield (
        "relation/views",
        lambda: (
            [
                [getattr(r, v).row_offsets, getattr(r, v).edge_ids]
                for v in ("output_csr", "input_csr", "kernel_csr")
            ]
            + [r.implicit_gemm.out_in_map, r.sorted_implicit_gemm.reorder_rows]
        ),
    )
    yield "kernel_offsets", lambda: ops.kernel_offsets(3, 2)


def pools() -> Any:
    for word, dtype in DTYPES.items():
        x = tensor(4000, 20, dtype=dtype)
        for mode in ("max", "avg", "sum"):
            run = getattr(ops, mode + "_pool3d")
            yield from with_gradient(
                f"pool/{mode}/{word}",
                lambda f, run=run, x=x: run(x.with_feats(f)).feats,
                x.feats,
            )
            whole = getattr(ops, f"global_{mode}_pool")
            yield from with_gradient(
                f"pool/global_{mode}/{word}",
                lambda f, run=whole, x=x: run(x.with_feats(f)),
                x.feats,
            )
        yield f"pool/3/{word}", lambda x=x: ops.pool3d(x, mode="max", kernel_size=3, padding=1)
        yield f"pool/global/{word}", lambda x=x: ops.global_pool(x, mode="avg")
        coarse = ops.sum_pool3d(x)
        yield f"pool/up/{word}", lambda c=coarse, x=x: ops.pool_transpose3d(c, x)
        yield from with_gradient(
            f"pool/trilinear/{word}",
            lambda f, c=coarse, x=x: ops.trilinear_upsample3d(c.with_feats(f), x).feats,
            coarse.feats,
        )
        per_batch = numbers(2, 20, seed=41, dtype=dtype)
        for name in ("add", "mul", "cat"):
            run = getattr(ops, "broadcast_" + name)
            yield from with_gradient(
                f"broadcast/{name}/{word}",
                lambda f, p, run=run, x=x: run(x.with_feats(f), p).feats,
                x.feats,
                per_batch,
            )


def features() -> Any:
    for word, dtype in DTYPES.items():
        x = tensor(3000, 24, dtype=dtype)
        f, w, b = x.feats, numbers(24, seed=51, dtype=dtype), numbers(24, seed=52, dtype=dtype)
        mean, var = numbers(24, seed=53), mx.square(numbers(24, seed=54)) + 0.5
        for name in ["relu", "gelu", "sigmoid", "silu", "softplus", "tanh", "leaky_relu"]:
            yield from with_gradient(f"features/{name}/{word}", getattr(ops, name + "_features"), f)
            yield f"tensor/{name}/{word}", lambda n=name, x=x: getattr(ops, n)(x)
        yield f"features/activation/{word}", lambda f=f: ops.activation(f, kind="silu")
        for name, args in (
            ("layer_norm", (w, b)),
            ("rms_norm", (w,)),
            ("batch_norm", (w, b)),
        ):
            yield from with_gradient(
                f"norm/{name}/{word}", getattr(ops, name + "_features"), f, *args
            )
            yield f"norm/{name}/tensor/{word}", lambda n=name, x=x, a=args: getattr(ops, n)(x, *a)
        yield (
            f"norm/eval/{word}",
            lambda f=f, w=w, b=b, m=mean, v=var: ops.batch_norm_features(f, w, b, mean=m, var=v),
        )
        yield from with_gradient(
            f"norm/act/{word}",
            lambda f, w, b, r: ops.batch_norm_act(f, w, b, residual=r, relu=True)[0],
            f,
            w,
            b,
            f[::-1],
        )
        yield f"norm/statistics/{word}", lambda f=f: ops.feature_statistics(f)
    key = mx.random.key(7)
    x = tensor(500, 8)
    yield "dropout", lambda: [ops.dropout(x, 0.3, key=key), ops.dropout_features(x.feats, key=key)]
    p, g = numbers(5000, seed=55), numbers(5000, seed=56)
    rates = mx.array([1e-3, 0.01, 1.0])
    m, v = 0.1 * g, mx.square(g)
    yield "adamw", lambda: ops.adamw_step(p, g, m, v, rates)


def gradients(module: Any, x: Any) -> Any:
    """Of all parameters, for the mean of squares."""

    def loss(m: Any) -> mx.array:
        return mx.square(m(x).feats).mean()

    return nn.value_and_grad(weights_of(module), loss)(module)[1]


def modules() -> Any:
    x = tensor(3000, 12, seed=101)
    for name, layer in {
        "Conv3d": lambda: lnn.Conv3d(12, 16, 3, stride=2, padding=1),
        "SubmConv3d": lambda: lnn.SubmConv3d(12, 16, 3),
        "GenerativeConvTranspose3d": lambda: lnn.GenerativeConvTranspose3d(12, 16, 2, stride=2),
        "BatchNorm": lambda: lnn.BatchNorm(12),
        "LayerNorm": lambda: lnn.LayerNorm(12),
    }.items():
        given = x.replace(stride=2) if "Generative" in name else x
        yield "nn/" + name, lambda make=layer, given=given: weights_of(make())(given)
        yield f"nn/{name}/gradient", lambda make=layer, given=given: gradients(make(), given)
    unet = models.MinkUNet(12, 5, depth=14, width=8)
    yield "models/MinkUNet14", lambda: weights_of(unet)(x)
    yield "models/MinkUNet14/gradient", lambda: gradients(unet, x)
