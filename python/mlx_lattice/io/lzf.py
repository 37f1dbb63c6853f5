"""LZF, the compression of PCD files (format of Marc Lehmann's liblzf), in NumPy and Python.

    000lllll  l+1 literal bytes follow
    LLLooooo oooooooo            copy L+2 bytes from o+1 back, L in 1..6
    111ooooo LLLLLLLL oooooooo   copy L+9 bytes
A token of three bytes makes at most 264 bytes, so that a stream can grow at most 88 times. A larger
claim is refused before memory is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

WINDOW, LONGEST, GROWTH = 1 << 13, 264, 88


def decompress(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes, or a ValueError."""
    if size > GROWTH * len(data):
        raise ValueError(f"{len(data)} compressed bytes cannot become {size}")
    out, at, end = bytearray(), 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                if at + control >= end:
                    raise ValueError("compressed data end inside a literal")
                out += data[at : at + control + 1]
                at += control + 1
            else:
                length = (control >> 5) + 2
                if length == 9:
                    length += data[at]
                    at += 1
                start = len(out) - ((control & 31) << 8) - data[at] - 1
                at += 1
                if start < 0:
                    raise ValueError("compressed data point before their begin")
                chunk = out[start : start + length]
                if len(chunk) < length:  # the copy overlaps itself
                    chunk = (chunk * (length // len(chunk) + 1))[:length]
                out += chunk
            if len(out) > size:
                break
    except IndexError:
        raise ValueError("compressed data end inside a token") from None
    if len(out) != size:
        raise ValueError(
            f"compressed data make {'more than ' if len(out) > size else ''}"
            f"{min(len(out), size)} bytes, expected {size}"
        )
    return bytes(out)


def compress(data: bytes) -> bytes:
    """Compresses greedily: each position copies from the nearest earlier place.

    Such a place has the same three bytes; NumPy finds the places of all positions at once.
    """
    n = len(data)
    out = bytearray()
    start = at = 0  # literals begin at start
    for at, back in _candidates(data):
        if at < start:
            continue
        length = 3
        most = min(LONGEST, n - at)
        source = at - back
        while length < most and data[source + length] == data[at + length]:
            length += 1
        _literals(out, data, start, at)
        code, offset = length - 2, back - 1
        if code < 7:
            out += bytes(((code << 5) | offset >> 8, offset & 255))
        else:
            out += bytes(((7 << 5) | offset >> 8, code - 7, offset & 255))
        start = at + length
    _literals(out, data, start, n)
    return bytes(out)


def _candidates(data: bytes) -> Iterator[tuple[int, int]]:
    """(position, distance) where the same three bytes stood at most WINDOW before, ascending."""
    b = np.frombuffer(data, np.uint8).astype(np.uint32)
    if len(b) < 4:
        return
    keys = b[:-2] | b[1:-1] << 8 | b[2:] << 16
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    back = np.zeros(len(keys), np.int64)
    back[order[1:]] = np.where(same, order[1:] - order[:-1], 0)
    places = np.flatnonzero((back > 0) & (back <= WINDOW))
    yield from zip(places.tolist(), back[places].tolist())


def _literals(out: bytearray, data: bytes, start: int, end: int) -> None:
    """Appends the bytes from start to end as they are."""
    for at in range(start, end, 32):
        part = data[at : min(at + 32, end)]
        out.append(len(part) - 1)
        out += part
