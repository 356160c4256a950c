"""Where a value of a cell goes: through expressions, variables, containers and functions.

The pass follows a value forwards. It does not regard the order of statements: a variable may have
every value that the cell assigns to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.names import Function, Names, Variable
from hpu_magic.runtime.porting.texts import is_torch_device

# How a container has a value, the outermost first: "" is the value itself.
ITEM, VALUE, KEY = "i", "v", "k"
Carrier = tuple[ast.expr, str]

_DEEPEST = 4
_SAME = ("list", "tuple", "sorted", "reversed", "set", "frozenset", "iter", "copy")
DEFAULTS = {"get": 1, "pop": 1, "setdefault": 1, "getattr": 2, "getenv": 1, "next": 1}
_TEXTS = ("lower", "strip")
_ADDED = ("append", "add", "insert")


class Flow:
    """Follows values through a cell.

    Parameters
    ----------
    names : Names
        The cell's names.
    bindings : Bindings
        What they mean.
    """

    def __init__(self, names: Names, bindings: Bindings) -> None:
        self._names = names
        self._bindings = bindings

    def carriers(self, start: ast.expr) -> list[Carrier]:
        """Return every expression that has the value of `start`, and how; `start` is the first."""
        found: dict[Carrier, None] = {}
        waiting: list[Carrier] = [(start, "")]
        while waiting:
            each = waiting.pop()
            if each not in found and len(each[1]) <= _DEEPEST:
                found[each] = None
                waiting += self._next(*each)
        return list(found)

    def follows(self, node: ast.expr, path: str) -> bool:
        """Return whether the value goes on from an expression."""
        return next(self._next(node, path), None) is not None

    def _next(self, node: ast.expr, path: str) -> Iterator[Carrier]:
        """Yield where the value goes from an expression in one step."""
        parent = self._names.parents.get(node)
        match parent:
            case ast.IfExp() if node is not parent.test:
                yield parent, path
            case ast.BoolOp() | ast.NamedExpr() | ast.Await():
                yield parent, path
                if isinstance(parent, ast.NamedExpr):
                    yield from self._bound(parent.target, path)
            case ast.FormattedValue() if path == "" and node is parent.value:
                yield from self._formatted(parent)
            case ast.List() | ast.Tuple() | ast.Set():
                yield from self._displayed(node, parent, path)
            case ast.Dict():
                kind = KEY if any(node is each for each in parent.keys) else VALUE
                yield parent, kind + path
            case ast.DictComp():
                yield parent, (KEY if node is parent.key else VALUE) + path
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield parent, ITEM + path
            case ast.Assign():
                for target in parent.targets:
                    yield from self._bound(target, path)
            case ast.AnnAssign() | ast.AugAssign():
                yield from self._bound(parent.target, path)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if node is parent.iter:
                if path[:1] in (ITEM, KEY):
                    yield from self._bound(parent.target, path[1:])
            case ast.withitem() if parent.optional_vars is not None:
                yield from self._bound(parent.optional_vars, path)
            case ast.Subscript() if node is parent.value and path[:1] in (ITEM, VALUE):
                yield parent, path if isinstance(parent.slice, ast.Slice) else path[1:]
            case ast.Return():
                yield from self._returned(node, path)
            case ast.Lambda() if node is parent.body:
                for call in self._names.calls.get(parent, ()):
                    yield call, path
            case ast.arguments():
                yield from self._default(node, parent, path)
            case ast.Attribute():
                yield from self._method(parent, path)
            case ast.Call() if node is not parent.func:
                yield from self._passed(node, parent, path)
            case ast.keyword():
                yield from self._by_name(parent, path)

    def reads(self, variable: Variable | None, path: str) -> Iterator[Carrier]:
        """Yield where a variable is read."""
        for each in self._names.reads.get(variable, ()) if variable is not None else ():
            yield each, path

    def _bound(self, target: ast.expr, path: str) -> Iterator[Carrier]:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts if path[:1] == ITEM else ():
                yield from self._bound(each, path[1:])
        elif isinstance(target, ast.Subscript):
            yield from self.reads(self._names.variable(target.value), VALUE + path)
        else:
            yield from self.reads(self._names.variable(target), path)

    def _displayed(self, node: ast.expr, parent: ast.expr, path: str) -> Iterator[Carrier]:
        """Follow one of several values; an assignment to as many names has one for each."""
        above = self._names.parents.get(parent)
        assigned = above.targets if isinstance(above, ast.Assign) else []
        elements = getattr(parent, "elts", [])
        for target in assigned:
            if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(elements):
                yield from self._bound(target.elts[elements.index(node)], path)
                return
        yield parent, ITEM + path

    def _formatted(self, node: ast.FormattedValue) -> Iterator[Carrier]:
        """Follow the first part of ``f"{kind}:{rank}"``, which is a device again."""
        whole = self._names.parents[node]
        if is_numbered(whole) and isinstance(whole, ast.JoinedStr) and whole.values[0] is node:
            yield whole, ""

    def _returned(self, node: ast.expr, path: str) -> Iterator[Carrier]:
        function = self._names.function_around(node)
        if function is None:
            return
        for call in self._names.calls.get(function, ()):
            yield call, path
        decorators = getattr(function, "decorator_list", [])
        if any(isinstance(each, ast.Name) and each.id == "property" for each in decorators):
            yield from self.reads(self._names.bound(function), path)

    def _default(self, node: ast.expr, parent: ast.arguments, path: str) -> Iterator[Carrier]:
        parameter = self._names.with_default(parent, node)
        if parameter is not None:
            yield from self.reads(self._names.variable(parameter), path)

    def _method(self, node: ast.Attribute, path: str) -> Iterator[Carrier]:
        call = self._names.parents.get(node)
        if not (isinstance(call, ast.Call) and call.func is node):
            return
        kind = path[:1]
        if (node.attr in _SAME and kind) or (node.attr in _TEXTS and not kind):
            yield call, path
        elif (node.attr == "values" and kind == VALUE) or (node.attr == "keys" and kind == KEY):
            yield call, ITEM + path[1:]
        elif node.attr in ("get", "pop", "setdefault") and kind in (ITEM, VALUE):
            yield call, path[1:]
        elif node.attr == "items" and kind in (VALUE, KEY):
            yield from self._in_loop(call, int(kind == VALUE), ITEM + path[1:])

    def _passed(self, node: ast.expr, call: ast.Call, path: str) -> Iterator[Carrier]:
        place = next((i for i, each in enumerate(call.args) if each is node), None)
        if place is None:
            return
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        if name in _SAME and path[:1] in (ITEM, KEY):
            yield call, ITEM + path[1:]
        elif name in ("str", "dict") or is_torch_device(call, self._bindings):
            yield call, path
        elif name in ("enumerate", "zip") and path[:1] == ITEM:
            yield from self._in_loop(call, place + (name == "enumerate"), path)
        elif DEFAULTS.get(name) == place:
            yield call, path
        elif name in _ADDED and isinstance(call.func, ast.Attribute):
            yield from self.reads(self._names.variable(call.func.value), ITEM + path)
        for function in self._names.called(call):
            yield from self._parameter(function, call, place, path)

    def _in_loop(self, call: ast.Call, place: int, path: str) -> Iterator[Carrier]:
        """Follow one part of what ``enumerate``, ``zip`` or ``items`` yields."""
        loop = self._names.parents.get(call)
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Tuple) and place < len(target.elts):
            yield from self._bound(target.elts[place], path[1:])
        else:
            yield call, ITEM + path

    def _parameter(
        self, function: Function, call: ast.Call, place: int, path: str
    ) -> Iterator[Carrier]:
        named = [*function.args.posonlyargs, *function.args.args]
        if self._takes_self(function):
            named = named[1:]
        if place < len(named):
            yield from self.reads(self._names.variable(named[place]), path)
        elif function.args.vararg is not None:
            yield from self.reads(self._names.variable(function.args.vararg), ITEM + path)

    def _takes_self(self, function: Function) -> bool:
        """Return whether a function's first parameter is its object."""
        decorators = getattr(function, "decorator_list", [])
        static = any(
            isinstance(each, ast.Name) and each.id == "staticmethod" for each in decorators
        )
        within = isinstance(self._names.parents.get(function), ast.ClassDef)
        return within and not static

    def _by_name(self, keyword: ast.keyword, path: str) -> Iterator[Carrier]:
        call = self._names.parents.get(keyword)
        if not isinstance(call, ast.Call) or keyword.arg is None:
            return
        for function in self._names.called(call):
            parameters = [
                *function.args.posonlyargs,
                *function.args.args,
                *function.args.kwonlyargs,
            ]
            matching = [each for each in parameters if each.arg == keyword.arg]
            for each in matching:
                yield from self.reads(self._names.variable(each), path)
            if not matching and function.args.kwarg is not None:
                yield from self.reads(self._names.variable(function.args.kwarg), VALUE + path)
        if kind := self._names.kind(call):  # a dataclass has its fields as parameters
            yield from self.reads(Variable(kind, keyword.arg), path)
        if isinstance(call.func, ast.Name) and call.func.id == "dict":
            yield call, VALUE + path
        elif keyword.arg == "type" and is_torch_device(call, self._bindings):
            yield call, path


def is_numbered(node: ast.AST) -> bool:
    """Return whether a formatted text is a value, a colon and a number, as a device is."""
    match node:
        case ast.JoinedStr([ast.FormattedValue(), ast.Constant(":"), ast.FormattedValue()]):
            return True
        case ast.JoinedStr([ast.FormattedValue(), ast.Constant(str(number))]):
            return number[:1] == ":" and number[1:].isdecimal()
    return False
