"""What the source of a submitted head may import and name, read without being executed.

A head needs torch and the modules of the harness that heads of the package import. These rules keep honest sources
small. They do not stop an author who knows them: see docs/submitting.md.
"""

import ast

LIBRARIES = {
    *("torch", "numpy", "scipy", "math", "typing", "collections", "dataclasses", "functools", "itertools", "enum"),
    *("abc", "operator", "__future__"),
}
OURS = ("protocols", "registry", "distributions", "dropout", "fading", "heads")
NAMES = {
    *("exec", "eval", "compile", "open", "input", "breakpoint", "globals", "locals", "vars", "setattr", "delattr"),
    *("getattr", "__import__", "__builtins__", "__loader__", "__spec__"),
}
# of a module, a tensor or an array: what reads or writes files, runs code, or leads to another module
ATTRIBUTES = {
    *("os", "sys", "subprocess", "socket", "ctypes", "ctypeslib", "builtins", "importlib", "inspect", "gc", "pickle"),
    *("multiprocessing", "distributed", "hub", "package", "cpp_extension", "load_library", "load_inline", "classes"),
    *("open", "read_text", "read_bytes", "fromregex", "home", "Path", "load", "save", "from_file", "fromfile"),
    *("tofile", "memmap", "loadtxt", "savetxt", "genfromtxt", "savez"),
    *("savez_compressed", "dump", "from_buffer", "compile", "jit", "threading", "tempfile", "shutil", "pathlib"),
    *("f_back", "f_globals", "f_locals", "f_builtins", "tb_frame", "gi_frame", "cr_frame"),
}
SPECIAL = {"__init__", "__class__", "__name__", "__dict__", "__len__", "__call__", "__post_init__"}


MOST_TEXT, MOST_NUMBERS = 1000, 200  # characters of one text, and numbers, of a source without data


def marks(source: str) -> list[str]:
    """What in a source that can be read may be data: numbers of a text, as a start value, need no file."""
    tree = ast.parse(source)
    texts = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
    constants = [each for each in ast.walk(tree) if isinstance(each, ast.Constant) and id(each) not in texts]
    long = [each for each in constants if isinstance(each.value, str | bytes) and len(each.value) > MOST_TEXT]
    numbers = sum(isinstance(each.value, int | float) for each in constants)
    found = [f"line {each.lineno}: a text of {len(each.value):,} characters; look at what is in it" for each in long]
    return found + ([f"{numbers:,} numbers; look at what they are"] if numbers > MOST_NUMBERS else [])


def faults(source: str) -> list[str]:
    """What a source imports or names that it may not, a sentence each with the line."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        return [f"it is no Python that can be read ({type(fault).__name__}: {str(fault)[:100]})"]
    found = {}
    for node in ast.walk(tree):
        for fault in _faults(node):
            found.setdefault(f"line {node.lineno}: {fault}")  # type: ignore[attr-defined]
    return list(found)


def _faults(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import) and any(alias.name.startswith("harness.registry") for alias in node.names):
        return ["it imports harness.registry; expected from harness.registry import HEADS"]
    if isinstance(node, ast.Import):
        return [_of_import(alias.name) for alias in node.names if _of_import(alias.name)]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        names = [f"{module}.{alias.name}" for alias in node.names]
        if module == "harness.registry":
            return [f"it imports {each}; a head needs HEADS only" for each in names if each != "harness.registry.HEADS"]
        return list(filter(None, [_of_import(module) or _of_parts(each) for each in names]))
    if isinstance(node, ast.Name) and node.id in NAMES:
        return [f"it names {node.id}"]
    if isinstance(node, ast.Attribute):
        return list(filter(None, [_of_parts(f".{node.attr}")]))
    return []


def _of_import(module: str) -> str:
    """What is wrong with the import of a module; '' if nothing is."""
    first, *more = module.split(".")
    known = first in LIBRARIES or (first == "harness" and more[:1] and more[0] in OURS)
    if not known:
        others = (
            "torch, numpy, scipy, math, typing and harness.protocols, registry, distributions, dropout, fading, heads"
        )
        return f"it imports {module}; a submitted head may import {others}"
    return _of_parts(module)


def _of_parts(dotted: str) -> str:
    """What is wrong with the parts of a dotted name after the first; '' if nothing is."""
    for part in dotted.split(".")[1:]:
        if part in ATTRIBUTES or (part.startswith("__") and part.endswith("__") and part not in SPECIAL):
            return f"it names {part}"
    return ""
