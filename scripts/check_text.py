#!/usr/bin/env python3
"""Checks what can be checked of "How we write" in CONTRIBUTING.md; prints file:line: finding.

    scripts/check_text.py [file ...]      without files: everything that git knows

All text files: 100 columns, US spelling, "X per Y" instead of "X a Y".
Markdown prose, Python docstrings, comments: at most 25 words per sentence.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

COLUMNS, WORDS = 100, 25
EXAMPLES = ("scripts/check_text.py", "tests/python/test_text.py")  # these plant mistakes
CODE = {".h", ".cpp", ".metal", ".cuh", ".py", ".sh", ".cmake", ".in", ".toml", ".yaml", ".yml"}
CODE |= {".cff", ".html", ".js", ".json", ".txt"}
NAMES = {"Makefile", "CMakeLists.txt", "run"}

# Spellings that are British, each with the US one.
BRITISH = {
    r"neighbour(?=s|ed|ing|hood|\b)": "neighbor",
    r"colour": "color",
    r"behaviour": "behavior",
    r"favour": "favor",
    r"centre(?=s|d|\b)": "center",
    r"metres?\b": "meter",
    r"fibres?\b": "fiber",
    r"(?<!blue )grey(?=s|\b)": "gray",  # "blue grey" is a color of the theme of the site
    r"labelled|labelling": "labeled",
    r"modelled|modelling": "modeled",
    r"cancelled|cancelling": "canceled",
    r"travelled|travelling": "traveled",
    r"analyse[sd]?\b": "analyze",
    r"artefact": "artifact",
    r"catalogue": "catalog",
    r"defence|offence": "defense",
    r"judgement": "judgment",
    r"learnt|spelt": "learned",
    r"whilst|amongst": "while, among",
    r"for ever\b": "forever",
    r"(?:normal|optim|quant|initial|minim|maxim|summar|organ|recogn|real|serial|synchron|vector"
    r"|parallel|general|special|token|util|visual|random|custom)is(?=e|ed|es|ing|ation)\w+": "-ize",
}

# "8 bytes a row": a countable word, then "a" or "an", then what is counted per.
COUNTED = (
    "ns|us|ms|s|seconds|minutes|bytes|bits|B|KB|MB|KiB|MiB|GB|FLOP|GFLOP|edges?|points?|channels?|"
    "values?|rows?|threads?|threadgroups?|triplets?|tasks?|symbols?|products?|launches|neighbors?|"
    "matri(?:x|ces)|arrays?|numbers?|weights?|codes?|parts?|files?|lines?|items?|queries|"
    "multiplications?|additions?|instructions?|loads?|reads|once|twice|cells?|voxels?|words?|labels?"
)
PER = (
    "rows?|points?|threads?|edges?|quer(?:y|ies)|voxels?|tasks?|offsets?|channels?|steps?|axis|"
    "cells?|elements?|values?|outputs?|inputs?|groups?|layers?|epochs?|ranks?|seconds?|kernels?|"
    "blocks?|segments?|neighbors?|sides?|lanes?|batch|scans?|clouds?|tiles?|nodes?|symbols?|bytes?|"
    "items?|cores?|calls?|launch|pairs?|samples?|class|buckets?|targets?|sources?|threadgroups?|"
    "words?|vectors?|registers?|panels?|columns?|triplets?|matrix|iterations?|cycles?|files?|"
    "lines?|benchmarks?|minutes?|hours?|days?|leaf|level|dimension|feature"
)
PER_RULE = re.compile(rf"\b({COUNTED})\s+an?\s+({PER})\b")
BRITISH_RULE = {re.compile(rf"\b{old}", re.IGNORECASE): new for old, new in BRITISH.items()}


def words(sentence):
    """Number of words. Inline code, a link and a formula between spaces count as one word each."""
    return sum(bool(re.search(r"[A-Za-z\0]", word)) for word in sentence.split())


def sentences(paragraph):
    """The sentences of plain text; the dots of numbers, names and abbreviations end none."""
    text = re.sub(r"``?[^`]*``?", "\0", paragraph)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|et al|vs|cf|Fig|Eq|Sec|No|St|approx)\.", r"\1", text)
    return [s for s in re.split(r"(?<=[.!?])[\"')*\]]*\s+(?=[^a-z]|\w*[\[(_])", text) if s.strip()]


def paragraphs(lines, code="    "):
    """(first line number, text) of the prose of Markdown: no code, no tables, no headings."""
    start, held, fence = 0, [], False
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        opens = stripped.startswith(("```", "~~~"))
        table = stripped[:1] in tuple("|#<!") or re.search(r"\S {2,}\S", stripped)
        quiet = fence or opens or not stripped or table or (not held and line.startswith(code))
        item = re.match(r"\s*([-*+]|\d+\.)\s|\s*[`\w][^.!?;]{0,40}: ", line)
        if held and (quiet or item):
            yield start, " ".join(held)
            held = []
        if not quiet:
            start = start if held else number
            held.append(re.sub(r"^([-*+]|\d+\.)\s", "", stripped))
        fence ^= opens


def docstrings(text):
    """(line, text) of the docstrings of a Python file, paragraph by paragraph."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) or not node.body:
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            value = first.value.value
            if isinstance(value, str):
                for start, held in paragraphs(_dedent(value)):
                    yield first.lineno + start - 1, held


def _dedent(text):
    lines = text.splitlines()
    indent = min((len(x) - len(x.lstrip()) for x in lines[1:] if x.strip()), default=0)
    return lines[:1] + [line[indent:] for line in lines[1:]]


def python_comments(text):
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = (token.start[1], token.string.lstrip("#").strip())
    return _blocks(lines)


def cpp_comments(text):
    lines = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(r'(?:^|\s)//+(?![^"]*"[^"]*$)\s?(.*)', line)
        if found:
            alone = not line[: found.start()].strip()  # a comment behind code is a text of its own
            lines[number] = (found.start() if alone else -number, found.group(1))
    return _blocks(lines)


def _blocks(lines):
    """Comments of adjacent lines that begin in one column are one text."""
    held, last = [], None
    for number in [*sorted(lines), None]:
        column, text = lines.get(number, (None, ""))
        if held and (last is None or number != last[0] + 1 or column != last[1]):
            yield from (
                (held[0][0] + at - 1, t) for at, t in paragraphs([t for _, t in held], "  ")
            )
            held = []
        if number is not None:
            held.append((number, text))
            last = (number, column)


def prose(path, text):
    if path.suffix == ".md":
        return paragraphs(text.splitlines())
    if path.suffix == ".py":
        return [*docstrings(text), *python_comments(text)]
    if path.suffix in (".h", ".cpp", ".metal", ".cuh"):
        return cpp_comments(text)
    return []


def findings(path, text):
    """(line, finding) of one file."""
    path = Path(path)
    markdown = path.suffix == ".md"
    for number, line in enumerate(text.splitlines(), 1):
        excepted = "://" in line or (markdown and line.lstrip().startswith("|"))
        if len(line) > COLUMNS and not excepted:
            yield number, f"{len(line)} columns, expected at most {COLUMNS}"
        for rule, us in BRITISH_RULE.items():
            for found in rule.finditer(line):
                yield number, f"British spelling {found.group()!r}, expected {us!r}"
        quoted = re.sub(r'"[^"]*"', "", line) if markdown else line  # an example of what not to do
        for found in PER_RULE.finditer(quoted):
            yield number, f'{found.group()!r}: write "{found.group(1)} per {found.group(2)}"'
    for number, paragraph in prose(path, text):
        for sentence in sentences(paragraph):
            if words(sentence) > WORDS:
                start = " ".join(sentence.split()[:6]).replace("\0", "`...`")
                yield number, f'{words(sentence)} words in "{start} ...", expected at most {WORDS}'


def is_text(path):
    path = Path(path)
    return path.suffix in CODE | {".md"} or path.name in NAMES


def main(arguments):
    files = arguments or subprocess.check_output(["git", "ls-files"], text=True).splitlines()
    found = 0
    for path in filter(is_text, files):
        if path in EXAMPLES or not Path(path).is_file():
            continue
        for number, finding in sorted(set(findings(path, Path(path).read_text()))):
            print(f"{path}:{number}: {finding}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
