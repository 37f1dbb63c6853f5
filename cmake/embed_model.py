"""Writes a C++ file that holds the bytes of the codec's network: embed_model.py INPUT OUTPUT."""

import sys
from pathlib import Path

data = Path(sys.argv[1]).read_bytes()
rows = [",".join(map(str, data[i : i + 32])) for i in range(0, len(data), 32)]
text = ",\n".join(rows)
Path(sys.argv[2]).write_text(
    "// Written by cmake/embed_model.py; do not edit.\n"
    '#include "lattice/kernels/cpu/coding/lidar_net.h"\n'
    "namespace lattice::cpu {\n"
    f"static constexpr uint8_t kFile[] = {{\n{text}}};\n"
    "Bytes LidarNet::shipped_file() { return kFile; }\n"
    "}  // namespace lattice::cpu\n",
    encoding="utf-8",
)
