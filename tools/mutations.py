"""Every single change that may be made to a file: what a test should notice.

A mutation replaces one piece of a source text: a comparison by its neighbour, `+` by `-`,
`and` by `or`, a number by the next, `min` by `max`, a condition by its opposite, a bound of a
slice by the next, or a statement by nothing. What no test should depend on stays as it is:
docstrings, annotations, messages (all that is raised, and every text), assertions, `__repr__`,
and code that only a type checker reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
COMPUTED = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "**": "*", "&": "|", "|": "&",
    "@": None, "<<": ">>", ">>": "<<", "^": "|",
}  # fmt: skip
JOINED = {"and": "or", "or": "and"}
RENAMED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin",
    "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
    "zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip
UNTOUCHED = frozenset({"__repr__", "__all__", "__doc__"})
"""Names of functions and variables that are left alone."""
_ANY_COMPARISON = re.compile(r"\b(?:is\s+not|not\s+in|is|in)\b|[<>=!]=|[<>]")
_ANY_OPERATOR = re.compile(r"\*\*|//|<<|>>|[-+*/%&|^@]")


@dataclass(frozen=True)
class Mutation:
    """One change to a file, and where."""

    line: int
    """Where it begins, from 1."""
    function: str
    """The function around it, as `co_qualname` has it; empty outside of any."""
    start: int
    end: int
    """Which bytes of the file are replaced."""
    text: str
    """By what."""
    kind: str

    def applied(self, source: bytes) -> bytes:
        """The source with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(source: bytes) -> list[Mutation]:
    """All changes to a Python file, in the order of their places."""
    tree = ast.parse(source)
    found = _Finder(source)
    found.visit(tree)
    unique = {(each.start, each.end, each.text): each for each in found.made}
    return sorted(unique.values(), key=lambda each: (each.start, each.end, each.text))


class _Finder(ast.NodeVisitor):
    """Walks a tree and notes what could be changed."""

    def __init__(self, source: bytes) -> None:
        self.source, self.made = source, list[Mutation]()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._function = ""

    # -- what is left alone -----------------------------------------------------------------

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion is for our own mistakes."""

    def visit_Import(self, node: ast.Import) -> None:
        """Deleting one is noticed by the next line."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """As for `import`."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text is a message."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._delete(node)  # and nothing in it: that is the message

    # -- where we are -----------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in UNTOUCHED or _is_abstract(node):
            return
        for decorator in node.decorator_list:
            self._visit_decorator(decorator)
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each)):
            self.visit(default)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        before, self._function = self._function, ".".join([*self._names, node.name])
        self._names += [node.name, "<locals>"]
        if len(body) > 1 and _returns_nothing(node):
            self._return_before(body[0])
        for statement in body:
            self.visit(statement)
        del self._names[-2:]
        self._function = before

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)  # type: ignore[arg-type]  # it has the same parts

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.orelse:
                self.visit(statement)
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    # -- statements -------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring, or one under a field
        if not isinstance(node.value, (ast.Yield, ast.YieldFrom, ast.Await)):
            self._delete(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(each, ast.Name) and each.id in UNTOUCHED for each in node.targets):
            return
        if all(isinstance(each, (ast.Attribute, ast.Subscript)) for each in node.targets):
            self._delete(node)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._delete(node)
        self._operator(node.target, node.value, COMPUTED, suffix="=")
        self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:
        self._delete(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._delete(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._delete(node)
        else:
            self.visit(node.value)

    # -- expressions ------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in zip((node.left, *node.comparators), node.comparators, strict=False):
            self._operator(left, right, COMPARED)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_text(node.left) or _is_text(node.right)):
            self._operator(node.left, node.right, COMPUTED)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._operator(left, right, JOINED)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
            self._replace(node, self._text(node.operand, grouped=True), "without its sign")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value), "opposite")
        elif isinstance(value, int):
            for other in (value + 1, value - 1):
                self._replace(node, f"({other})" if other < 0 else str(other), "next number")
        elif isinstance(value, float):
            self._replace(node, repr(value + 1.0), "next number")

    def visit_Call(self, node: ast.Call) -> None:
        named = node.func
        name = named.id if isinstance(named, ast.Name) else getattr(named, "attr", "")
        if name in RENAMED:
            end = self._end(named)
            self._note(named.end_lineno or 0, end - len(name), end, RENAMED[name], "other function")
        if name in ("min", "max") and isinstance(named, ast.Name) and len(node.args) == 2:
            for kept in node.args:
                if not isinstance(kept, ast.Starred):
                    self._replace(node, self._text(kept, grouped=True), "one of two")
        self.visit(named)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg != "strict":  # of zip: lengths that differ are our own mistake
                self.visit(keyword.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for bound in (b for each in parts if isinstance(each, ast.Slice) for b in _bounds(each)):
            if not isinstance(bound, ast.Constant):
                self._replace(bound, f"{self._text(bound, grouped=True)} + 1", "next bound")
        self.generic_visit(node)

    # -- how changes are made ---------------------------------------------------------------

    def _visit_decorator(self, decorator: ast.expr) -> None:
        for inner in ast.walk(decorator):
            if isinstance(inner, ast.Lambda):
                self.visit(inner.body)

    def _negate(self, test: ast.expr) -> None:
        self._replace(test, f"not ({self._text(test)})", "opposite")

    def _delete(self, statement: ast.stmt) -> None:
        self._replace(statement, "pass", "without it")

    def _operator(
        self, left: ast.expr, right: ast.expr, table: dict[str, str | None] | dict[str, str],
        suffix: str = "",
    ) -> None:  # fmt: skip
        """Replace what stands between two operands; brackets and comments may stand there too."""
        start, end = self._end(left), self._start(right)
        gap = re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), self.source[start:end]).decode()
        if table is JOINED:
            pattern = re.compile(r"\b(?:and|or)\b")
        else:
            pattern = _ANY_COMPARISON if table is COMPARED else _ANY_OPERATOR
        found = pattern.search(gap)
        other = table.get(" ".join(found[0].split())) if found else None
        if found and other:
            at = start + len(gap[: found.start()].encode())
            line = (left.end_lineno or 0) + gap[: found.start()].count("\n")
            spare = " " if other[-1].isalpha() and gap[found.end() : found.end() + 1] == "(" else ""
            self._note(line, at, at + len(found[0]), other + spare, f"{found[0]}{suffix}")

    def _return_before(self, statement: ast.stmt) -> None:
        at = self._start(statement)
        margin = " " * (at - self._starts[statement.lineno - 1])
        self._note(statement.lineno, at, at, f"return\n{margin}", "return early")

    def _replace(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        self._note(node.lineno, self._start(node), self._end(node), text, kind)

    def _note(self, line: int, start: int, end: int, text: str, kind: str) -> None:
        self.made.append(Mutation(line, self._function, start, end, text, kind))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.expr, *, grouped: bool = False) -> str:
        text = self.source[self._start(node) : self._end(node)].decode()
        simple = isinstance(node, (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript))
        return f"({text})" if grouped and not simple else text


def _bounds(part: ast.Slice) -> Iterator[ast.expr]:
    for bound in (part.lower, part.upper):
        if bound is not None:
            yield bound


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_abstract(node: ast.FunctionDef) -> bool:
    """Whether it only declares: a protocol's method, or one overload of a function."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return all(
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and each.value.value is ...
        for each in body
    )


def _returns_nothing(node: ast.FunctionDef) -> bool:
    returned = node.returns
    return isinstance(returned, ast.Constant) and returned.value is None
