"""The function through which the worker calls a kernel.

It unpacks buffers and the thread's place by MLX's signature.
"""

import re

_TRIPLES = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "dispatch_threads_per_threadgroup",
]
_NUMBERS = [
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
]
_SAME = {
    "grid_size": "threads_per_grid",
    "thread_execution_width": "threads_per_simdgroup",
    "dispatch_simdgroups_per_threadgroup": "simdgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup": "quadgroups_per_threadgroup",
}
_BUFFER = re.compile(r"(.*?)([*&]) (\w+) \[\[buffer\((\d+)\)\]\]$")
_PLACE = re.compile(r"((?:uint|ushort)[23]?) (\w+) \[\[(\w+)\]\]$")


def entry(name, text):
    """(text to append, names of the buffers in order). `text` is MLX's, whose kernel is `name`."""
    signature = re.search(
        rf"\[\[kernel[^\n]*?\]\]\s+void\s+{re.escape(name)}\(\s*(.*?)\)\s*\{{", text, re.DOTALL
    )
    instance = re.search(rf"decltype\({re.escape(name)}(<[^\n]*?>)\) ", text)
    arguments, buffers = [], []
    for parameter in re.split(r",(?![^(<]*[)>])", signature[1]):
        parameter = " ".join(parameter.split())
        buffer = _BUFFER.match(parameter)
        if buffer:
            type_text, kind, buffer_name, slot = buffer.groups()
            arguments.append(f"{'*' if kind == '&' else ''}({type_text}*)buffers[{slot}]")
            buffers.append(buffer_name)
        elif parameter:
            arguments.append(_place(*_PLACE.match(parameter).group(1, 3)))
    call = name + (instance[1] if instance else "")
    return (
        '\n# 1 "entry"\nextern "C" __attribute__((no_sanitize("thread", "address", "undefined")))\n'
        "void msl_entry(size_t msl_buffers, size_t msl_place) {\n"
        "  const __global size_t* buffers = (const __global size_t*)msl_buffers;\n"
        "  const __global uint* place = (const __global uint*)msl_place;\n"
        f"  {call}({', '.join(arguments)});\n}}\n",
        buffers,
    )


def _place(type_text, attribute):
    attribute = _SAME.get(attribute, attribute)
    if attribute == "grid_origin":
        return f"{type_text}(0)"
    if attribute in _NUMBERS:
        return f"place[{3 * len(_TRIPLES) + _NUMBERS.index(attribute)}]"
    first = 3 * _TRIPLES.index(attribute)
    width = int(type_text[-1]) if type_text[-1].isdigit() else 1
    parts = [f"place[{first + i}]" for i in range(width)]
    return parts[0] if width == 1 else f"msl_make<{type_text}>({', '.join(parts)})"
