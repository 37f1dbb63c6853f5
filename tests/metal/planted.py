"""Mistakes that tests plant in the text of kernels, and what the host says of them."""

import mlx.core as mx
import numpy as np
from metal.host import CompileError, MetalError, MetalHost


def plant(old, new, nth=0):
    """Replaces the n-th occurrence of `old`."""

    def change(text):
        parts = text.split(old)
        assert len(parts) > nth + 1, f"the kernel has no place {nth} for this mistake: {old}"
        return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])

    return change


def outcome(call, kernel, change=None, variant="check", tier="neural_accelerator", layout=None):
    """What the host says of the launches with the mistake; "wrong numbers" if only they are."""
    want = call()
    mx.eval(want)
    host = MetalHost(
        variant,
        tier=tier,
        layout=layout,
        change=lambda text: change(text) if change and kernel + "<" in text else text,
    )
    try:
        with host:
            found = call()
            mx.eval(found)
    except (CompileError, MetalError) as error:
        return str(error)
    assert any(kernel in ran.name for ran in host.launches)
    a, b = (np.array(v[0]).astype(np.float32) for v in (want, found))
    right = np.allclose(a, b, rtol=4e-3, atol=4e-3 * np.abs(a).max())
    return "right" if right else "wrong numbers"
