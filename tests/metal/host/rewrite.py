"""What clang's C++ for OpenCL cannot parse, written so that it can; and errors that need no types.

  template [[host_name("x")]] [[kernel]] ...    the attributes are dropped
  threadgroup T a[n];  inside a kernel          static memory and a reference in threadgroup space
  float4(...), vec<T, N>(...)                   msl_make<...>(...)
  1.0bf                                         ((bfloat)1.0f)
Lines stay where they are, so that messages name the line of the MSL text. The words may already be
those of the shim's macros. Inside of a #define nothing is rewritten.
"""

import re

from .tokens import Tokens

GUARD = 64  # bytes behind each threadgroup variable that belong to none
_SCALARS = [
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "bfloat",
    "float",
]
_VECTORS = {scalar + n for scalar in _SCALARS for n in "234"}
_ATTRIBUTES = {
    "kernel",
    "msl_kernel",
    "host_name",
    "buffer",
    "max_total_threads_per_threadgroup",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "threads_per_simdgroup",
    "simdgroups_per_threadgroup",
    "quadgroups_per_threadgroup",
    "thread_execution_width",
    "grid_size",
    "grid_origin",
    "dispatch_threads_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
    "maybe_unused",
    "nodiscard",
    "fallthrough",
    "noinline",
}
_ABSENT = {
    "double",
    "goto",
    "new",
    "delete",
    "throw",
    "try",
    "catch",
    "virtual",
    "dynamic_cast",
    "typeid",
    "thread_local",
    "std",
}
_KERNEL, _THREAD, _THREADGROUP = (
    {"kernel", "msl_kernel"},
    {"thread", "__private"},
    {"threadgroup", "__local"},
)
_QUALIFIERS = {
    "const",
    "__global",
    "device",
    "__constant",
    "constant",
    "noexcept",
    *_THREAD,
    *_THREADGROUP,
}


def rewrite(text, own):
    """(new text, [(line, message)]); `own` is the name of the file whose mistakes count."""
    tokens = Tokens(text)
    mistakes = []
    in_kernel, in_function = _bodies(tokens)
    classes = {
        tokens.word(k + 1) for k, w in enumerate(tokens.words) if w in ("struct", "class", "union")
    }
    k = 0
    while k < len(tokens):
        if tokens.place(k)[0] == own:
            mistakes += [(tokens.place(k)[1], m) for m in _mistakes(tokens, k)]
        word = tokens.words[k]
        if word == "template" and tokens.word(k + 1) == "[":
            k = _drop_attributes(tokens, k + 1)
        elif word in _THREADGROUP and in_kernel[k]:
            k = _threadgroup_memory(tokens, k)
        else:
            _one(tokens, k, word, in_function[k], classes)
            k += 1
    return tokens.text(), mistakes


def _bodies(tokens):
    """For each token: whether it is in the body of a kernel, of any function."""
    kernels = set()
    for k, word in enumerate(tokens.words):
        if word in _KERNEL:
            start, stop = tokens.until(k + 1, "{"), tokens.until(k + 1, ";")
            if tokens.word(k - 1) == "[":  # [[kernel]]: the attribute's brackets are open here
                start, stop = (
                    tokens.until(tokens.close(k - 2) + 1, "{"),
                    tokens.until(tokens.close(k - 2) + 1, ";"),
                )
            if start < stop:
                kernels.add(start)
    in_kernel, in_function, stack = [], [], [(False, False)]
    for k, word in enumerate(tokens.words):
        if word == "{":
            before = k - 1
            while tokens.word(before) in _QUALIFIERS:
                before -= 1
            stack.append((stack[-1][0] or k in kernels, stack[-1][1] or tokens.word(before) == ")"))
        in_kernel.append(stack[-1][0])
        in_function.append(stack[-1][1])
        if word == "}" and len(stack) > 1:
            stack.pop()
    return in_kernel, in_function


def _mistakes(tokens, k):
    word = tokens.words[k]
    if (
        word in _ABSENT
        and tokens.word(k - 1) not in (".", "->")
        and (word != "delete" or tokens.word(k - 1) != "=")
    ):
        yield f"'{word}' does not exist in MSL"
    if word == "[" and tokens.word(k + 1) == "[" and tokens.kind(k + 2) == "name":
        j, end = k + 2, tokens.close(k + 1)
        while j < end:
            if tokens.word(j) not in _ATTRIBUTES:
                yield f"unknown attribute '{tokens.word(j)}'"
            j = min(tokens.until(j, ","), end) + 1


def _drop_attributes(tokens, k):
    while tokens.word(k) == "[" and tokens.word(k + 1) == "[":
        end = tokens.close(k)
        tokens.replace(k, end, "")
        k = end + 1
    return k


def _threadgroup_memory(tokens, k):
    """`threadgroup T a[n], b;` in a kernel. Other uses of the word are left alone."""
    end = tokens.until(k, ";")
    depth, name, plain = 0, None, tokens.word(k - 1) in (";", "{", "}", ")", "]", ":")
    for j in range(k + 1, end):
        word = tokens.words[j]
        depth += (word in "<([{") - (word in ">)]}")
        if depth == 0 and word in ("*", "&", "="):
            plain = False
        if (
            name is None
            and depth == 0
            and tokens.kinds[j] == "name"
            and tokens.word(j + 1) in ("[", ",", ";")
        ):
            name = j
    if not plain or name is None:
        return k + 1
    type_text = " ".join(tokens.words[k + 1 : name])
    out, j = [], name
    while j < end:
        stop = min(tokens.until(j, ","), end)
        variable, size = tokens.words[j], " ".join(tokens.words[j + 1 : stop])
        out.append(
            f"typedef {type_text} msl_type_{variable} {size}; "
            f'__attribute__((aligned(16), no_sanitize("address"))) static __global unsigned char '
            f"msl_memory_{variable}[sizeof(msl_type_{variable}) + {GUARD}]; "
            f"__local msl_type_{variable}& {variable} = "
            f"*(__local msl_type_{variable}*)(size_t)msl_memory_{variable};"
        )
        j = stop + 1
    tokens.replace(k, end, " ".join(out))
    return end + 1


def _one(tokens, k, word, in_function, classes):
    before, after = tokens.word(k - 1), tokens.word(k + 1)
    if word in _KERNEL:
        tokens.put(k, "kernel" if before in ("[", ",") and after in ("]", ",") else "")
    elif word in _THREAD and before == ")":
        # A constructor qualified `thread`: clang's temporaries have no address space.
        start = tokens.open(k - 1)
        if (
            start > 0
            and tokens.word(start - 1) in classes
            and tokens.word(start - 2) not in (".", "->", "=", "return")
        ):
            tokens.put(k, "")
    elif (
        word in _VECTORS
        and after == "("
        and before not in ("operator", "using", "typedef", "struct", "~")
    ):
        if tokens.kind(k - 1) != "name" or before in (
            "return",
            "else",
            "case",
            "do",
            "const",
            "constexpr",
        ):
            tokens.put(k, f"msl_make<{word}>")
    elif (
        word in _VECTORS
        and in_function
        and tokens.kind(k + 1) == "name"
        and tokens.word(k + 2) == "("
    ):
        end = tokens.close(k + 2)
        if before in (";", "{", "}", "const", "constexpr", ")") and tokens.word(end + 1) == ";":
            tokens.put(k + 1, f"{after} = msl_make<{word}>")
    elif word == "vec" and after == "<":
        end = tokens.close(k + 1)
        first = k - 2 if before == "::" and tokens.kind(k - 2) == "name" else k
        if end > 0 and tokens.word(end + 1) == "(" and tokens.word(first - 1) != "operator":
            tokens.put(first, "msl_make<" + tokens.get(first))
            tokens.put(end, "> >")
    elif word == "static_cast" and after == "<":
        inside = tokens.words[k + 2 : tokens.close(k + 1)]
        if (
            inside[:1] == ["vec"]
            or inside[:3] == ["metal", "::", "vec"]
            or (len(inside) == 1 and inside[0] in _VECTORS)
        ):
            tokens.put(k, "msl_make")
    elif (
        tokens.kinds[k] == "number"
        and re.search(r"[0-9.]bf$", word)
        and not word.lower().startswith("0x")
    ):
        value = word[:-2] if "." in word or "e" in word else word[:-2] + ".0"
        tokens.put(k, f"((bfloat){value}f)")
