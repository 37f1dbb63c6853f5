"""Writes what torch.save writes, opcode by opcode, because the tests have no PyTorch."""

import struct
import zipfile

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
KINDS = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def call(name, *arguments):
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def storage(kind, key, count, view=b""):
    head = b"(" + text("storage") + f"ctorch\n{kind}\n".encode()
    return head + text(key) + text("cpu") + number(count) + view + b"tQ"


def tensor(stored, offset, shape, strides):
    axes = [b"(" + b"".join(map(number, values)) + b"t" for values in (shape, strides)]
    hooks = call("collections.OrderedDict")
    parts = (stored, number(offset), *axes, b"\x89", hooks)
    return call("torch._utils._rebuild_tensor_v2", *parts)


class Writer:
    """Turns containers of arrays into a pickle and keeps the arrays as storages."""

    def __init__(self, legacy=False):
        self.storages, self.legacy = [], legacy

    def value(self, value):
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, (int, float)):
            return number(value)
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            items = b"".join(self.value(k) + self.value(v) for k, v in value.items())
            return b"}(" + items + b"u"
        if isinstance(value, list):
            return b"](" + b"".join(map(self.value, value)) + b"e"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.value, value)) + b"t"
        return self.array(value)

    def array(self, array):
        key = str(len(self.storages))
        self.storages.append(np.require(array, requirements="C"))
        strides = [s // array.itemsize for s in self.storages[-1].strides]
        view = b"N" if self.legacy else b""
        stored = storage(KINDS[str(array.dtype)], key, array.size, view)
        return tensor(stored, 0, array.shape, strides)


def pickled(body):
    return b"\x80\x02" + body + b"."


def write_zip(path, pickle, storages=(), **members):
    """A zip file as torch.save writes it: data.pkl, byteorder, data/<key>, version."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        for key, array in enumerate(storages):
            archive.writestr(f"archive/data/{key}", array.tobytes())
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
        archive.writestr("archive/version", b"3\n")


def save(path, value, legacy=False):
    """The value as torch.save(value, path, _use_new_zipfile_serialization=not legacy) writes it."""
    writer = Writer(legacy)
    pickle = pickled(writer.value(value))
    if not legacy:
        return write_zip(path, pickle, writer.storages)
    system = pickled(Writer().value({"little_endian": True, "protocol_version": 1001}))
    keys = pickled(Writer().value([str(i) for i in range(len(writer.storages))]))
    with open(path, "wb") as file:
        file.write(pickled(number(MAGIC)) + pickled(number(1001)) + system + pickle + keys)
        for array in writer.storages:
            file.write(struct.pack("<q", array.size) + array.tobytes())
