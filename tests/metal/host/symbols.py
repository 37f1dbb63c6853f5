"""Lines of the MSL text for addresses in a kernel."""

import re
import subprocess

_CODE = re.compile(r"@0x([0-9a-f]+)")


def with_lines(file, mistakes):
    """@0x12 in messages becomes "line 5"."""
    codes = sorted({c for m in mistakes for c in _CODE.findall(m)})
    if not codes:
        return mistakes
    addresses = [hex(int(c, 16) - 1) for c in codes]
    out = subprocess.run(
        ["llvm-symbolizer-19", f"--obj={file}", "--functions=none", *addresses],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = {}
    for code, block in zip(codes, out.strip().split("\n\n")):
        own = re.findall(
            r"^kernel\.(?:metal|cu):(\d+)|/kernel\.(?:metal|cu):(\d+)", block, re.MULTILINE
        )
        lines[code] = f"line {own[0][0] or own[0][1]}" if own else "an unknown line"
    return [_CODE.sub(lambda m: lines[m[1]], mistake) for mistake in mistakes]
