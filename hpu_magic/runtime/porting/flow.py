"""Data flow analysis of a cell: values in expressions, variables, containers and functions.

The analysis follows a value forward and ignores the order of statements: a variable may have any of
the values that the cell assigns to it. If a value enters an object that the analysis does
not model, such as the result of ``map``, it may be anywhere in that object.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.device_parameters import is_name, last_name
from hpu_magic.runtime.porting.device_strings import constant, is_torch_device, looks_like_device
from hpu_magic.runtime.porting.names import CellVariable, Names, Signature, is_property

# The path to a value in an expression, starting at the outermost container; () is the value itself.
# In a dict or an object, the step to a value is "=name", or "=" if its name is unknown.
ITEM, KEY, VALUE, RESULT = "item", "key", "=", "result"
ANYWHERE = "anywhere"  # the position in the value is unknown, or the value itself is meant
Path = tuple[str, ...]
Carrier = tuple[ast.expr, Path]

_DEEPEST = 4
_SAME = ("list", "tuple", "sorted", "reversed", "set", "frozenset", "iter", "copy")
_DEFAULTS = {"get": 1, "pop": 1, "setdefault": 1, "getattr": 2, "getenv": 1, "next": 1}
LOOKUPS = ("get", "pop", "setdefault")
TEXTS = ("lower", "strip")
_ADDED = {"append": 0, "appendleft": 0, "add": 0, "insert": 1, "put": 0}
_MERGED = ("extend", "update")
# Python functions whose results contain their arguments or consist of them.
_PASSING = ("map", "filter", "next", "max", "min", "vars")
_PASSING_MODULES = (
    *("argparse.", "collections.", "concurrent.", "copy.", "dataclasses.", "functools."),
    *("itertools.", "multiprocessing.", "queue.", "random.", "threading.", "types.", "typing."),
)
_CONTENT = ("default", "default_factory", "args", "const", "choices")
_OPTIONS = ("add_argument", "setattr", "set_defaults", "option")
_MODELLED = (
    *(*_SAME, *_ADDED, *_MERGED, *LOOKUPS, *_OPTIONS),
    *("str", "dict", "enumerate", "zip", "getattr", "open", "isinstance", "issubclass"),
)


class Flow:
    """Follows values through a cell."""

    def __init__(self, names: Names, bindings: Bindings) -> None:
        self._names = names
        self._bindings = bindings
        # Maps each expression that is called to the functions of the cell that it refers to.
        self._called: dict[ast.expr, list[Signature]] = defaultdict(list)
        self._called_within: dict[ast.expr, list[Signature]] = defaultdict(list)
        self._known_steps: dict[Carrier, tuple[list[Carrier], list[Carrier]]] = {}
        types = {each for node in names.parents for each in _annotated(node)}
        nodes = [each for each in names.parents if isinstance(each, ast.expr) and each not in types]
        functions = {each: found for each in nodes if (found := names.called(each))}
        for each in sorted(functions, key=lambda each: not _is_called(each, names.parents)):
            self._record_calls(each, functions[each])
        self._known_steps.clear()  # steps that were cached before all calls had been recorded

    def _record_calls(self, function: ast.expr, found: list[Signature]) -> None:
        """Record the calls to an expression that refers to one of the cell's functions."""
        within = {(): self._called, (ANYWHERE,): self._called_within}
        called = _is_called(function, self._names.parents)
        for node, path in [(function, ())] if called else self.carriers(function):
            if path in within and _is_called(node, self._names.parents):
                within[path][node] += found

    def called(self, call: ast.Call) -> list[Signature]:
        """Return the signatures of the cell's functions that are run by a call."""
        return self._called.get(call.func, [])

    def carriers(
        self, start: ast.expr, is_taken: Callable[[ast.expr], bool] = lambda _: False
    ) -> list[Carrier]:
        """Return all expressions that can hold the value of `start`, with paths; `start` is first.

        If `is_taken` is true for an argument, the result of an unknown call is assumed not to
        contain that argument's value.
        """
        found: dict[Carrier, None] = {}
        waiting: list[Carrier] = [(start, ())]
        while waiting:
            node, path = waiting.pop()
            if len(path) > _DEEPEST:
                path = (*path[: _DEEPEST - 1], ANYWHERE)
            if (node, path) not in found:
                found[node, path] = None
                known, unknown = self._steps(node, path)
                waiting += known
                waiting += () if is_taken(node) else unknown
        return list(found)

    def _steps(self, node: ast.expr, path: Path) -> tuple[list[Carrier], list[Carrier]]:
        """Return the expressions that receive the value in modeled steps, and in unknown calls."""
        if (node, path) not in self._known_steps:
            unknown = list(self._into_unknown(node, path))
            self._known_steps[node, path] = (list(self._next(node, path)), unknown)
        return self._known_steps[node, path]

    def follows(self, node: ast.expr, path: Path) -> bool:
        """Return whether the analysis models the call that takes an expression as an argument."""
        call, slot = self._call(node)
        if call is None or slot is None:
            return False
        passed = self._passes(call.func) or bool(self._functions(call))
        return passed or next(self._passed(node, call, slot, path), None) is not None

    def _next(self, node: ast.expr, path: Path) -> Iterator[Carrier]:
        """Yield the expressions that receive the value of an expression in one step."""
        parent = self._names.parents.get(node)
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return
        match parent:
            case ast.IfExp() if node is not parent.test:
                yield parent, path
            case ast.BoolOp() | ast.Await():
                yield parent, path
            case ast.NamedExpr():
                yield parent, path
                yield from self._bound(parent.target, path)
            case ast.BinOp():
                yield parent, (ANYWHERE,) if isinstance(parent.op, ast.Mod) else _inside(path)
            case ast.FormattedValue() if node is parent.value:
                whole = self._names.parents[parent]
                assert isinstance(whole, ast.JoinedStr)
                first = is_numbered(whole) and whole.values[0] is parent
                yield whole, path if first else (ANYWHERE,)
            case ast.List() | ast.Tuple() | ast.Set():
                yield from self._displayed(node, parent, path)
            case ast.Dict():
                yield parent, _under(node, parent) + path
            case ast.DictComp():
                yield parent, (KEY if node is parent.key else VALUE, *path)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield parent, (ITEM, *path)
            case ast.Assign():
                for target in parent.targets:
                    yield from self._bound(target, path)
            case ast.AnnAssign() if node is parent.value:
                yield from self._bound(parent.target, path)
            case ast.AugAssign():
                yield from self._bound(parent.target, _inside(path))
            case ast.For() | ast.AsyncFor() | ast.comprehension() if node is parent.iter:
                for item in _in(path, ITEM, KEY):
                    yield from self._bound(parent.target, item)
            case ast.withitem() if parent.optional_vars is not None:
                for value in (path, *_in(path, ITEM)):  # from a generator
                    yield from self._bound(parent.optional_vars, value)
            case ast.Subscript() if node is parent.slice:
                yield from self._added(parent.value, (KEY, *path))
            case ast.Subscript() if isinstance(parent.slice, ast.Slice):
                yield parent, _inside(path)
            case ast.Subscript():
                for value in _in(path, ITEM, VALUE + constant(parent.slice)):
                    yield parent, value
            case ast.Return():
                yield from self._returned(node, path)
            case ast.Yield():
                yield from self._returned(node, (ITEM, *path))
            case ast.YieldFrom():
                yield from self._returned(node, path)
            case ast.Lambda() if node is parent.body:
                yield parent, (RESULT, *path)
            case ast.arguments():
                parameter = self._names.with_default(parent, node)
                if parameter is not None:
                    yield from self.reads(self._names.variable(parameter), path)
            case ast.Attribute():
                yield from self._attribute(parent, path)
            case ast.Call() if node is parent.func:
                for value in _in(path, RESULT):
                    yield parent, value
            case ast.Starred() if not isinstance(self._names.parents[parent], ast.Call):
                above = self._names.parents[parent]
                for item in _in(path, ITEM, KEY) if isinstance(above, ast.expr) else ():
                    yield above, (ITEM, *item)  # type: ignore[misc]
        call, slot = self._call(node)
        if call is not None and slot is not None:
            yield from self._passed(node, call, slot, path)

    def reads(self, variable: CellVariable | None, path: Path) -> Iterator[Carrier]:
        """Yield all reads of a variable."""
        for each in self._names.reads.get(variable, ()) if variable is not None else ():
            yield each, path

    def _bound(self, target: ast.expr, path: Path) -> Iterator[Carrier]:
        if isinstance(target, ast.Starred):
            yield from self._bound(target.value, (ITEM, *path))
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                for item in _in(path, ITEM):
                    yield from self._bound(each, item)
        elif isinstance(target, ast.Subscript):
            yield from self._added(target.value, (VALUE + constant(target.slice), *path))
        else:
            yield from self.reads(self._names.variable(target), path)

    def _added(self, container: ast.expr, path: Path) -> Iterator[Carrier]:
        """Follow a value into a container, through every name that refers to the container."""
        names, seen = [container], set()
        for each in names:
            variable = self._names.variable(each)
            if variable not in seen:
                seen.add(variable)
                yield from self.reads(variable, path)
                names += self._names.made(each)

    def _displayed(self, node: ast.expr, parent: ast.expr, path: Path) -> Iterator[Carrier]:
        """Follow an element of a list, tuple or set literal, which an assignment may unpack."""
        above = self._names.parents.get(parent)
        elements = getattr(parent, "elts", [])
        before = elements[: elements.index(node)][-1:]
        if before and constant(before[0]).startswith("--"):
            yield from self._option(constant(before[0]), path)
        for target in above.targets if isinstance(above, ast.Assign) else ():
            if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(elements):
                yield from self._bound(target.elts[elements.index(node)], path)
                return
        yield parent, (ITEM, *path)

    def _returned(self, node: ast.expr, path: Path) -> Iterator[Carrier]:
        function = self._names.function_around(node)
        if function is None:
            return
        returned = path if is_property(function) else (RESULT, *path)
        yield from self.reads(self._names.bound(function), returned)

    def _attribute(self, node: ast.Attribute, path: Path) -> Iterator[Carrier]:
        call = self._names.parents.get(node)
        for value in (*_in(path, VALUE + node.attr), *([path] if node.attr == "value" else [])):
            yield node, value
        if not (isinstance(call, ast.Call) and call.func is node):
            return
        if node.attr in _SAME or (node.attr in TEXTS and not path):
            yield call, path
        elif node.attr in LOOKUPS:
            name = constant(call.args[0]) if call.args else ""
            for value in _in(path, ITEM, VALUE + name):
                yield call, value
        for step, place in (VALUE, 1), (KEY, 0):
            for value in _in(path, step):
                if node.attr == ("keys", "values")[place]:
                    yield call, (ITEM, *value)
                elif node.attr == "items":
                    yield from self._in_loop(call, place, value)

    # Calls

    def _call(self, node: ast.expr) -> tuple[ast.Call | None, int | str | None]:
        """Return the call that an expression is passed to, and the argument's position or name.

        The name is "*" for ``*a`` and "**" for ``**a``.
        """
        parent = self._names.parents.get(node)
        slot: int | str | None = None
        if isinstance(parent, ast.Starred):
            slot, parent = "*", self._names.parents.get(parent)
        elif isinstance(parent, ast.keyword):
            slot, parent = parent.arg or "**", self._names.parents.get(parent)
        elif isinstance(parent, ast.Call) and node is not parent.func:
            slot = parent.args.index(node)
        return (parent, slot) if isinstance(parent, ast.Call) else (None, None)

    def _passed(
        self, node: ast.expr, call: ast.Call, slot: int | str, path: Path
    ) -> Iterator[Carrier]:
        """Yield the expressions that receive the value of an argument."""
        name = last_name(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in _SAME and slot in (0, "iterable"):
            for item in _in(path, ITEM, KEY):
                yield call, (ITEM, *item)
        elif name == "str" or (is_torch_device(call, self._bindings) and slot in (0, "type")):
            yield call, path
        elif name == "dict" and slot == 0:
            yield call, path
            for value in (value for pair in _in(path, ITEM) for value in _in(pair, ITEM)):
                yield from ((call, (KEY, *value)), (call, (VALUE, *value)))
        elif name == "dict" and isinstance(slot, str):
            yield call, (VALUE + slot.strip("*"), *path)
        elif name in ("enumerate", "zip") and isinstance(slot, int):
            for item in _in(path, ITEM, KEY):
                yield from self._in_loop(call, slot + (name == "enumerate"), item)
        elif _DEFAULTS.get(name) == slot:
            yield call, path
        if owner is not None and _ADDED.get(name) == slot:
            yield from self._added(owner, (ITEM, *path))
        elif owner is not None and name in _MERGED:
            yield from self._added(owner, path)
        elif owner is not None and name in LOOKUPS:
            yield from self._added(owner, (KEY if slot == 0 else VALUE, *path))
        for signature in self.called(call):
            yield from self._parameters(signature, call, slot, path)
        if name in _OPTIONS and (slot in _CONTENT or isinstance(slot, int)):
            named = [each.value for each in call.keywords if each.arg == "dest"]
            for each in (*call.args, *named):
                yield from self._option(constant(each) if each is not node else "", path, call)
        elif name in _OPTIONS and isinstance(slot, str):
            yield from self._option(slot, path)

    def _into_unknown(self, node: ast.expr, path: Path) -> Iterator[Carrier]:
        """Yield the expressions that may receive the value of an unknown function's argument."""
        call, slot = self._call(node)
        if call is None or self.called(call):
            return
        functions = self._functions(call)
        for signature in functions:
            every = (*signature.named.values(), signature.rest, signature.others)
            for variable in [signature.named[slot]] if slot in signature.named else every:
                yield from self.reads(variable, (ANYWHERE,))
        within = len(path) > 1 or path[:1] not in ((), (ANYWHERE,))
        if last_name(call.func) in _MODELLED:
            return
        if functions or within or slot in _CONTENT or self._passes(call.func):
            if isinstance(slot, str) and "*" not in slot and slot not in _CONTENT:
                yield call, (VALUE + slot, *path)
            else:  # an object that is created from a dict has the same names
                yield call, path if path and path[0].startswith(VALUE) else (ANYWHERE,)

    def _passes(self, function: ast.expr) -> bool:
        """Return whether a function's result contains only its arguments, like a container."""
        made = [each.func for each in self._names.made(function) if isinstance(each, ast.Call)]
        for each in (function, *made):
            if (self._bindings.dotted(each) or "").startswith(_PASSING_MODULES):
                return True
        return isinstance(function, ast.Name) and function.id in _PASSING

    def _functions(self, call: ast.Call) -> list[Signature]:
        """Return the cell's functions in a call's arguments or in the called expression."""
        arguments = [*call.args, *(each.value for each in call.keywords)]
        made = self._names.made(call.func)
        return [
            signature for each in (*arguments, *made) for signature in self._names.referenced(each)
        ]

    def _parameters(
        self, signature: Signature, call: ast.Call, slot: int | str, path: Path
    ) -> Iterator[Carrier]:
        positional, named, rest, others = signature
        starred = any(isinstance(each, ast.Starred) for each in call.args)
        if slot == "**":
            for name, variable in named.items():
                for value in _in(path, VALUE + name):
                    yield from self.reads(variable, value)
            yield from self.reads(others, path)
        elif isinstance(slot, str) and slot != "*":
            yield from self.reads(named.get(slot), path)
            if slot not in named:
                yield from self.reads(others, (VALUE + slot, *path))
        elif starred:
            for item in _in(path, ITEM, KEY) if slot == "*" else [path]:
                for variable in positional:
                    yield from self.reads(variable, item)
                yield from self.reads(rest, (ITEM, *item))
        elif isinstance(slot, int) and slot < len(positional):
            yield from self.reads(positional[slot], path)
        else:
            yield from self.reads(rest, (ITEM, *path))

    def _option(
        self, name: str, path: Path, decorator: ast.expr | None = None
    ) -> Iterator[Carrier]:
        """Follow a command-line option, such as ``--gpu``, or an attribute that is set by name."""
        name = name.lstrip("-").replace("-", "_")
        for each in self._names.attributes.get(name, ()):
            yield each, path and (ANYWHERE,)
        function = self._names.parents.get(decorator) if decorator is not None else None
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self.reads(self._names.signature(function).named.get(name), path)

    def _in_loop(self, call: ast.Call, place: int, path: Path) -> Iterator[Carrier]:
        """Follow one element of the tuples produced by ``enumerate``, ``zip`` or ``items``."""
        loop = self._names.parents.get(call)
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Tuple) and place < len(target.elts):
            yield from self._bound(target.elts[place], path)
        else:
            yield call, (ITEM, ITEM, *path)


def is_numbered(node: ast.AST) -> bool:
    """Return whether an f-string consists of a value, a colon and a number, like a device."""
    match node:
        case ast.JoinedStr([ast.FormattedValue(), ast.Constant(":"), ast.FormattedValue()]):
            return True
        case ast.JoinedStr([ast.FormattedValue(), ast.Constant(str(number))]):
            return number[:1] == ":" and number[1:].isdecimal()
    return False


def _is_called(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[node]
    return isinstance(parent, ast.Call) and node is parent.func


def _annotated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions in a node's annotations, because annotations have no effect."""
    for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        yield from ast.walk(annotation) if annotation is not None else ()


def _in(path: Path, *steps: str) -> list[Path]:
    """Return a list with the rest of a path that starts with one of the steps; otherwise, []."""
    if path[:1] == (ANYWHERE,):
        return [path]
    return [path[1:]] if path and any(_meets(path[0], each) for each in steps) else []


def _meets(step: str, other: str) -> bool:
    names = step.startswith(VALUE) and other.startswith(VALUE)
    return step == other or (names and VALUE in (step, other))


def _inside(path: Path) -> Path:
    """Return the path to a value in a slice or a concatenation."""
    return path or (ANYWHERE,)


def _under(node: ast.expr, parent: ast.Dict) -> Path:
    """Return the path to an expression in a dict display."""
    if any(node is each for each in parent.keys):
        return (KEY,)
    [key] = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is node]
    if key is None:
        return ()
    named = any(is_name(constant(each)) for each in parent.keys)
    # Other cells may read entries from a table of devices.
    table = not named and all(looks_like_device(each) for each in parent.values)
    return (VALUE if table else VALUE + constant(key),)
