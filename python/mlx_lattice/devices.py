"""Where operations run: a scope for the default device, and a probe."""

import contextlib

import mlx.core as mx

_answers = {}


@contextlib.contextmanager
def on(device):
    """Makes `device` the default inside a `with` block and restores the old one, also after an error."""
    before = mx.default_device()
    mx.set_default_device(device)
    try:
        yield
    finally:
        mx.set_default_device(before)


def _signature(value):
    """What of an argument can change the answer: shapes and dtypes of arrays, values of scalars."""
    if isinstance(value, mx.array):
        return ("array", value.shape, str(value.dtype))
    if hasattr(value, "feats"):
        return ("tensor", value.feats.shape, str(value.feats.dtype), str(value.coords.dtype))
    if isinstance(value, (list, tuple)):
        return tuple(_signature(v) for v in value)
    return repr(value)


def _arrays(value):
    if isinstance(value, mx.array):
        return [value]
    if hasattr(value, "feats"):
        return [value.feats]
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in _arrays(v)]
    return []


def supported_on(device, fn, *args, **kwargs):
    """Whether `fn(*args, **kwargs)` runs on `device`. Runs it once and remembers the answer for arguments of this kind."""
    target = mx.Device(device) if isinstance(device, mx.DeviceType) else device
    name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', repr(fn))}"
    key = (str(target), name, _signature(args), _signature(tuple(sorted(kwargs.items()))))
    if key not in _answers:
        try:
            with on(target):
                mx.eval(*_arrays(fn(*args, **kwargs)))
            _answers[key] = True
        except (RuntimeError, ValueError, NotImplementedError):
            _answers[key] = False
    return _answers[key]
