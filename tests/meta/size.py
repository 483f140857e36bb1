"""Prints how large the code is, by package: files, lines of code, tokens, functions. Part of `make lint`.

A line of code has a token that is no comment and no docstring. Tokens are those of Python's tokenizer but comments,
docstrings, line ends and indentation: shorter files that are denser are no easier to read.
"""

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = {"PRODUCT": ("harness", "heads", "backbones", "benchmarks"), "TESTS": ("tests",)}
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
NAMES = ("files", "code lines", "tokens", "functions")


def sizes(place: Path) -> tuple[int, int, int, int]:
    """One file, its lines of code, its tokens and its functions."""
    text = place.read_text(encoding="utf-8")
    functions, docstrings = 0, set()
    for node in ast.walk(ast.parse(text)):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add((node.lineno, node.col_offset))
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE and token.start not in docstrings
    ]
    lines = {line for token in found for line in range(token.start[0], token.end[0] + 1)}
    return 1, len(lines), len(found), functions


def main() -> None:
    for title, tops in TOPS.items():
        packages = defaultdict(lambda: (0, 0, 0, 0))
        for top in tops:
            for place in sorted((ROOT / top).rglob("*.py")):
                package = "/".join(place.relative_to(ROOT).parts[:-1][:2])
                for name in (package, title):
                    packages[name] = tuple(map(sum, zip(packages[name], sizes(place), strict=True)))
        total = packages.pop(title)
        shown = {**packages, title: total} if title == "PRODUCT" else {title: total}
        if title == "PRODUCT":
            print(f"{'':<24}" + "".join(f"{name:>12}" for name in NAMES))
        for name, numbers in shown.items():
            print(f"{name:<24}" + "".join(f"{number:>12,}" for number in numbers))


if __name__ == "__main__":
    main()
