"""Which values a cell's names take, and where they are read: by Python's rules of scope."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Variable(NamedTuple):
    """A name in its scope, or an attribute of a class or an object."""

    owner: object
    name: str


@dataclass(eq=False)
class _Scope:
    node: ast.AST
    around: _Scope | None
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)  # of ``global`` and ``nonlocal``

    def find(self, name: str, *, inside: bool = True) -> _Scope:
        """Return the scope that a name belongs to; code within a class does not see its names."""
        seen = inside or not isinstance(self.node, ast.ClassDef)
        own = seen and name in self.names and name not in self.outer
        return self if own or self.around is None else self.around.find(name, inside=False)


class Names:
    """Variables, functions and attributes of a cell.

    Attributes
    ----------
    parents : dict
        The node around each node.
    reads : dict of Variable to list of ast.expr
        Every place that reads a variable or an attribute.
    values : dict of Variable to list of ast.expr
        What is assigned to it as a whole.
    functions : dict of Variable to list
        The functions and classes that a name is bound to.
    calls : dict
        The calls of each function.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._scopes: dict[ast.AST, _Scope] = {}
        self._enter(tree, _Scope(tree, None))
        self.reads: dict[Variable, list[ast.expr]] = defaultdict(list)
        self.values: dict[Variable, list[ast.expr]] = defaultdict(list)
        self.functions: dict[Variable, list[Function | ast.ClassDef]] = defaultdict(list)
        self.calls: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        nodes = list(self._scopes)
        for node in nodes:
            self._bind(node)
        for node in nodes:
            variable = self.variable(node) if isinstance(node, ast.Name | ast.Attribute) else None
            if variable is not None and isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                self.reads[variable].append(node)  # type: ignore[arg-type]
        for node in nodes:
            for function in self.called(node) if isinstance(node, ast.Call) else ():
                self.calls[function].append(node)  # type: ignore[arg-type]

    def _enter(self, node: ast.AST, scope: _Scope) -> None:
        """Record the scope of a node and of everything in it."""
        self._scopes[node] = scope
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope.names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            named = scope
            while isinstance(named.node, _COMPREHENSIONS) and named.around and self._walrus(node):
                named = named.around
            named.names.add(node.id)
        elif isinstance(node, ast.alias):
            scope.names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            scope.names.add(node.arg)
        outside: set[ast.AST] = set()
        within = scope
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, *_COMPREHENSIONS)):
            within = _Scope(node, scope)
            outside = set(_evaluated_outside(node))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.arguments) and within is not scope:
                defaults = {*child.defaults, *child.kw_defaults}
                self._scopes[child] = within
                for each in ast.iter_child_nodes(child):
                    self._enter(each, scope if each in defaults else within)
            else:
                self._enter(child, scope if child in outside else within)

    def _walrus(self, node: ast.AST) -> bool:
        return isinstance(self.parents[node], ast.NamedExpr)  # it binds outside a comprehension

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.functions[self._named(node, node.name)].append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for variable in filter(None, map(self.variable, targets)):
                self.values[variable].append(node.value)
                if isinstance(node.value, ast.Lambda):
                    self.functions[variable].append(node.value)

    def _named(self, node: ast.AST, name: str) -> Variable:
        scope = self._scopes[node].find(name)
        return Variable(scope.node if isinstance(scope.node, ast.ClassDef) else scope, name)

    def bound(self, function: Function) -> Variable | None:
        """Return the name that a definition binds."""
        if isinstance(function, ast.Lambda):
            return None
        return self._named(function, function.name)

    def variable(self, node: ast.AST) -> Variable | None:
        """Return what a name, a parameter or an attribute refers to; None for anything else."""
        if isinstance(node, ast.Name | ast.arg):
            return self._named(node, node.id if isinstance(node, ast.Name) else node.arg)
        if isinstance(node, ast.Attribute):
            owner = self.kind(node.value) or self.variable(node.value)
            return Variable(owner, node.attr) if owner is not None else None
        return None

    def kind(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the cell's class that an expression is, or is an instance of, if known."""
        scope = self._scopes[node].node
        around = self.parents.get(scope)
        first = _first_parameter(scope) if isinstance(scope, _FUNCTIONS) else None
        if isinstance(around, ast.ClassDef) and isinstance(node, ast.Name) and node.id == first:
            return around  # self
        variable = self.variable(node)
        made = self.values.get(variable, []) if variable is not None else []
        for each in [node, *made]:
            name = each.func if isinstance(each, ast.Call) else each
            if isinstance(name, ast.Name):
                for found in self.functions.get(self._named(name, name.id), []):
                    if isinstance(found, ast.ClassDef):
                        return found
        return None

    def called(self, call: ast.Call) -> list[Function]:
        """Return the cell's functions that a call may run."""
        variable = self.variable(call.func)
        found: list[Function] = []
        for each in self.functions.get(variable, []) if variable is not None else []:
            if isinstance(each, ast.ClassDef):
                made = self.functions.get(Variable(each, "__init__"), [])
                found += [method for method in made if not isinstance(method, ast.ClassDef)]
            else:
                found.append(each)
        return found

    def with_default(self, parameters: ast.arguments, default: ast.expr) -> ast.arg | None:
        """Return the parameter that has an expression as its default."""
        positional = [*parameters.posonlyargs, *parameters.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(positional), reversed(parameters.defaults), strict=False),
            *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        ]
        return next((each for each, value in pairs if value is default), None)

    def function_around(self, node: ast.AST) -> Function | None:
        """Return the function that a node belongs to."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, _FUNCTIONS):
                return node
        return None


def _first_parameter(function: Function) -> str | None:
    parameters = [*function.args.posonlyargs, *function.args.args]
    return parameters[0].arg if parameters else None


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, _COMPREHENSIONS):
        return []  # its first iterable is, too, which matters to no name that we follow
    found: list[ast.AST] = list(getattr(node, "decorator_list", []))
    found += getattr(node, "bases", [])
    found += getattr(node, "keywords", [])
    returns = getattr(node, "returns", None)
    return [*found, returns] if returns is not None else found
