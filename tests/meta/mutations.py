"""Small faults planted in a source, one at a time: a term dropped, a sign flipped, an off-by-one.

Not mutated: strings (so docstrings too), annotations, imports, decorators, `raise` statements with their messages,
f-strings, `super().__init__()`, `if TYPE_CHECKING`, `__all__`, and what guards invariants: `assert`, `strict=` of zip.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}
UNTOUCHED_NODES = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr)
UNTOUCHED_TEXTS = {"super().__init__()", "strict=True", "strict=False"}
FLIPPED = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.Pow: [ast.Mult],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: where it is, what it says, and the module's code with it."""

    line: int
    column: int
    function: str  # 'MixtureOfSoftmaxes.forward', or '' outside of functions
    before: str
    after: str
    within: frozenset[str]  # the texts of the mutated node and of all nodes around it
    code: CodeType

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node of a tree, with what it takes to put another one there."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    within: tuple[ast.AST, ...]

    def put(self, node: ast.AST) -> None:
        """Set `node` here; its position is the old node's."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(source: str, filename: str = "<source>") -> list[Mutant]:
    """Every mutant of a module, in the order of the source; none compiles to the code of the module or of another."""
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    seen, mutants = {_essence(_compiled(tree, filename))}, []
    for place in _places(tree):
        for node in alternatives(place, modules):
            mutant = _mutant(tree, filename, place, node)
            if (essence := _essence(mutant.code)) not in seen:
                seen.add(essence)
                mutants.append(mutant)
    return sorted(mutants, key=lambda mutant: (mutant.line, mutant.column))


def _mutant(tree: ast.Module, filename: str, place: Place, node: ast.AST) -> Mutant:
    """The mutant with `node` at a place; the tree is afterwards as it was."""
    around = (*place.within, place.node)
    located = next(outer for outer in reversed(around) if hasattr(outer, "lineno"))
    if not hasattr(node, "lineno"):
        ast.fix_missing_locations(ast.copy_location(node, located))
    place.put(node)
    code = _compiled(tree, filename)
    place.put(place.node)
    return Mutant(
        line=located.lineno,
        column=located.col_offset + 1,
        function=place.function,
        before=ast.unparse(place.node).strip(),
        after=ast.unparse(node).strip(),
        within=frozenset(ast.unparse(outer) for outer in around if isinstance(outer, ast.expr)),
        code=code,
    )


def _compiled(tree: ast.Module, filename: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a mutant may read `1(x)`
        return compile(tree, filename, "exec", dont_inherit=True)


def _essence(code: CodeType) -> CodeType:
    """The code without its positions in the source."""
    constants = tuple(_essence(const) if isinstance(const, CodeType) else const for const in code.co_consts)
    return code.replace(co_linetable=b"", co_firstlineno=1, co_consts=constants)


def alternatives(place: Place, modules: set[str]) -> Iterator[ast.AST]:
    """The nodes that may stand in the place of one; `modules` are the imported names, which are not operands."""
    yield from _in_role(place)
    is_statement = isinstance(place.node, ast.Call) and isinstance(place.parent, ast.Expr)  # dropped as a whole
    yield from () if is_statement else _of_kind(place.node, modules)


def _in_role(place: Place) -> Iterator[ast.AST]:
    """By what the node is for: a condition always true or false, an index one less."""
    match place:
        case Place(parent=ast.If() | ast.IfExp(), field="test"):
            yield from (ast.Constant(True), ast.Constant(False))
        case Place(parent=ast.While(), field="test"):
            yield ast.Constant(False)
        case Place(parent=ast.Subscript(), field="slice") if _is_index(place.node):
            yield _plus(place.node, -1)
        case Place(within=(*_, ast.Subscript(slice=ast.Tuple() as index), parent)) if index is parent:
            yield from [_plus(place.node, -1)] if _is_index(place.node) else []


def _of_kind(node: ast.AST, modules: set[str]) -> Iterator[ast.AST]:
    """By what the node is."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from map(ast.Constant, (value + 1, value - 1, -value) if value else (value + 1, value - 1))
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=ast.Constant(value=str())):
            return
        case ast.BinOp(left=left, op=op, right=right):
            yield from (left, right, *(ast.BinOp(left, flipped(), right) for flipped in FLIPPED.get(type(op), ())))
        case ast.AugAssign(target=target, op=op, value=value):
            yield from (ast.Pass(), ast.Assign([target], value))
            yield from (ast.AugAssign(target, flipped(), value) for flipped in FLIPPED.get(type(op), ()))
        case ast.BoolOp(op=op, values=values):
            yield from (*values, ast.BoolOp(FLIPPED[type(op)][0](), values))
        case ast.Compare():
            yield from _comparisons(node)
        case ast.List(ctx=ast.Load()) | ast.Tuple(ctx=ast.Load()) | ast.Set():
            yield from (_replaced(node, elts=rest) for rest in _one_dropped(node.elts))
        case ast.Dict(keys=keys, values=values):
            pairs = zip(_one_dropped(keys), _one_dropped(values), strict=True)
            yield from (ast.Dict(list(k), list(v)) for k, v in pairs)
        case ast.comprehension(ifs=ifs):
            yield from (_replaced(node, ifs=rest) for rest in _one_dropped(ifs))
        case ast.Slice():
            yield from _bounds(node, ("lower", "upper", "step"))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute(value=ast.Attribute())]):
            yield ast.Pass()
        case ast.Call():
            yield from _calls(node, modules)


def _calls(call: ast.Call, modules: set[str]) -> Iterator[ast.AST]:
    """f(x) -> x and x.f() -> x; a keyword or the last of several arguments dropped; the bounds of range and slice."""
    match call:
        case ast.Call(func=ast.Name("range" | "slice" as name), args=args):
            for i, bound in enumerate(args):
                yield from (_replaced(call, args=[*args[:i], _plus(bound, by), *args[i + 1 :]]) for by in (1, -1))
            if len(args) == 1 and name == "range":
                yield _replaced(call, args=[ast.Constant(1), *args])
            return
        case ast.Call(func=ast.Attribute(value=receiver)) if ast.unparse(receiver) not in {"self", "super()"}:
            if ast.unparse(receiver).partition(".")[0] not in modules:
                yield receiver
    operands = [arg for arg in call.args if not _is_constant(arg)]
    if len(operands) == 1:
        yield from operands
    if len(call.args) > 1:
        yield _replaced(call, args=call.args[:-1])
    for rest in _one_dropped(call.keywords):
        if all(word in rest or not _is_untouched(word) for word in call.keywords):
            yield _replaced(call, keywords=rest)


def _comparisons(compare: ast.Compare) -> Iterator[ast.AST]:
    """Every operator flipped in turn; of a < b < c one side dropped."""
    left, ops, right = compare.left, compare.ops, compare.comparators
    for i, op in enumerate(ops):
        for flipped in FLIPPED[type(op)]:
            yield ast.Compare(left, [*ops[:i], flipped(), *ops[i + 1 :]], right)
    if len(ops) > 1:
        yield from (ast.Compare(left, ops[:-1], right[:-1]), ast.Compare(right[0], ops[1:], right[1:]))


def _bounds(node: ast.AST, fields: tuple[str, ...]) -> Iterator[ast.AST]:
    for field in fields:
        bound = getattr(node, field)
        if bound is not None:
            yield from (_replaced(node, **{field: _plus(bound, by)}) for by in (1, -1))


def _places(node: ast.AST, function: str = "", within: tuple[ast.AST, ...] = ()) -> Iterator[Place]:
    """All nodes below one that may be mutated, from the outside in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        if field in UNTOUCHED_FIELDS:
            continue
        for i, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_untouched(child):
                continue
            index = i if isinstance(value, list) else None
            yield Place(node=child, parent=node, field=field, index=index, function=function, within=within)
            yield from _places(child, function, (*within, child))


def _is_untouched(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return True
    is_text = isinstance(node, ast.Expr | ast.keyword) and ast.unparse(node) in UNTOUCHED_TEXTS
    return is_text or isinstance(node, UNTOUCHED_NODES)


def _is_index(node: ast.AST) -> bool:
    return not isinstance(node, ast.Tuple | ast.Slice | ast.expr_context) and not _is_constant(node)


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant | ast.Starred)


def _one_dropped(items: list) -> list[list]:
    return [[*items[:i], *items[i + 1 :]] for i in range(len(items))]


def _replaced(node: ast.AST, **fields) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _plus(node: ast.expr, by: int) -> ast.expr:
    return ast.BinOp(node, ast.Add() if by > 0 else ast.Sub(), ast.Constant(abs(by)))
