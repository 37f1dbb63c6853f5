"""Errors that Apple's compiler reports and clang does not.

Found in clang's warnings and in its tree of declarations.

A pointer or reference without an address space: an error before Metal 4.1. An implicit conversion
to bfloat: MSL has none.
"""

import re

ARGUMENTS = [
    "-fsyntax-only",
    "-Wno-everything",
    "-Wimplicit-float-conversion",
    "-Wimplicit-int-float-conversion",
]
ARGUMENTS += ["-Xclang", "-ast-dump", "-fno-color-diagnostics"]

_TO_BFLOAT = re.compile(
    r"^kernel\.metal:(\d+):\d+: warning: "
    r"(implicit conversion .*to '[^']*\b(?:__bf16|bfloat)\w*'.*?) ?\[-W",
    re.MULTILINE,
)
_NODE = re.compile(
    r"^[|` -]*(\w+) 0x[0-9a-f]+ (?:(?:parent|prev) 0x[0-9a-f]+ )*(<(?:[^<>]|<[^<>]*>)*>)?(.*)$"
)
_PLACE = re.compile(r"([^\s<>,]+):(\d+):\d+|(line):(\d+):\d+|col:\d+")
_DECLARED = re.compile(
    r"(?:used |referenced |constexpr )*"
    r"(?!(?:implicit|invalid|used|referenced|constexpr) )(\w+) '([^']*)'"
)
_SPACE = re.compile(r"__(?:global|local|private|constant)\b[^*&]*[*&]")


def mistakes(tree, warnings):
    """(line, message) of each; `tree` and `warnings` are what clang wrote with ARGUMENTS."""
    found = {(int(line), message.strip()) for line, message in _TO_BFLOAT.findall(warnings)}
    file, line = "", 0
    for node in map(_NODE.match, tree.splitlines()):
        if not node:
            continue
        kind, span, rest = node.groups()
        rest = rest.strip()
        own = _PLACE.match(rest)
        for place in [*_PLACE.finditer(span or ""), *([own] if own else [])]:
            if place[1] and place[1] != "line":
                file = place[1]
            number = place[2] or place[4]
            line = int(number) if number else line
        if kind not in ("VarDecl", "ParmVarDecl", "FieldDecl") or file != "kernel.metal" or not own:
            continue
        declared = _DECLARED.match(rest[own.end() :].strip())
        if declared and not declared[1].startswith("msl_") and _bare(declared[2]):
            found.add(
                (
                    line,
                    f"{declared[1]}: pointer or reference without address space, '{declared[2]}'",
                )
            )
    return sorted(found)


def _bare(type_text):
    type_text = re.sub(r"\[[^\]]*\]", "", type_text)  # an array's length may multiply
    if "__generic" in type_text:
        return True
    if any(word in type_text for word in ("(", "auto", "lambda")) or not re.search(
        r"[*&]", type_text
    ):
        return False
    return not _SPACE.search(type_text)
