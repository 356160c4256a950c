"""Find the variables in a cell, their values and their reads, by Python's scoping rules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hpu_magic.runtime.porting.device_parameters import last_name
from hpu_magic.runtime.porting.device_strings import constant

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class CellVariable(NamedTuple):
    """A name in its scope, or an attribute of a class or an object."""

    owner: object
    name: str


class Signature(NamedTuple):
    """The parameters of a function, or the fields of a dataclass."""

    positional: list[CellVariable]
    named: dict[str, CellVariable]
    rest: CellVariable | None  # *args
    others: CellVariable | None  # **kwargs


@dataclass(eq=False)
class _Scope:
    node: ast.AST
    around: _Scope | None
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)  # from ``global`` and ``nonlocal``

    def find(self, name: str, *, inside: bool = True) -> _Scope:
        """Return the scope that defines a name; methods do not see the names of their class."""
        visible = inside or not isinstance(self.node, ast.ClassDef)
        own = visible and name in self.names and name not in self.outer
        return self if own or self.around is None else self.around.find(name, inside=False)


class Names:
    """The variables, functions and attributes in a cell.

    ``parents`` maps each node to its parent. ``reads`` maps each variable or attribute to all of
    its reads, ``values`` to the expressions assigned to it, and ``functions`` to the functions and
    classes with its name. ``attributes`` maps the name of each attribute or entry that the cell
    does not define to all of its reads.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._scopes: dict[ast.AST, _Scope] = {}
        self._imported: set[str] = set()
        self._classes: dict[str, set[ast.ClassDef]] = defaultdict(set)  # keyed by attribute
        self._enter(tree, _Scope(tree, None))
        self.reads: dict[CellVariable, list[ast.expr]] = defaultdict(list)
        self.values: dict[CellVariable, list[ast.expr]] = defaultdict(list)
        self.functions: dict[CellVariable, list[Function | ast.ClassDef]] = defaultdict(list)
        self.attributes: dict[str, list[ast.expr]] = defaultdict(list)
        nodes = list(self._scopes)
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self._families = {each: [each] for each in classes}
        for each in classes:
            self._bind(each)
        for each in classes:
            self._record_bases(each)
        for node in nodes:
            if node not in self._families:
                self._bind(node)
        for node in nodes:
            self._record_attribute(node)
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._record_read(node)
            elif isinstance(node, ast.Subscript) and not self._is_dict(node.value):
                self.attributes[constant(node.slice)].append(node)  # vars(args)["gpu"]

    def _enter(self, node: ast.AST, scope: _Scope) -> None:
        """Record the scopes of a node and its descendants."""
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
            name = (node.asname or node.name).partition(".")[0]
            scope.names.add(name)
            self._imported.add(name)
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
        return isinstance(self.parents[node], ast.NamedExpr)  # binds outside a comprehension

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.functions[self._named(node, node.name)].append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for variable in filter(None, map(self.variable, targets)):
                self.values[variable].append(node.value)
                if isinstance(node.value, ast.Lambda):
                    self.functions[variable].append(node.value)

    def _record_attribute(self, node: ast.AST) -> None:
        """Record which class defines an attribute."""
        stored = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
        variable = self.variable(node) if stored else None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            variable = self.bound(node)
        if variable is not None and isinstance(variable.owner, ast.ClassDef):
            self._classes[variable.name].add(variable.owner)

    def _record_read(self, node: ast.Name | ast.Attribute) -> None:
        variable = self.variable(node)
        if variable is not None:
            self.reads[variable].append(node)
        own = variable is not None and variable.owner in self._classes.get(variable.name, ())
        if isinstance(node, ast.Attribute) and not own:
            self.attributes[node.attr].append(node)

    def _is_dict(self, node: ast.expr) -> bool:
        return any(isinstance(each, ast.Dict) for each in self.made(node))

    def _named(self, node: ast.AST, name: str) -> CellVariable:
        scope = self._scopes[node].find(name)
        if isinstance(scope.node, ast.ClassDef):
            return CellVariable(self._family(scope.node), name)
        return CellVariable(scope, name)

    def _bases(self, of: ast.ClassDef) -> list[ast.ClassDef]:
        """Return a class's base classes that the cell defines, followed by the class itself."""
        classes = [of]
        for each in classes:
            scope = self._scopes[each]
            for base in each.bases:
                name = base.id if isinstance(base, ast.Name) else ""
                known = self.functions.get(CellVariable(scope.find(name), name), [])
                classes += [c for c in known if isinstance(c, ast.ClassDef) and c not in classes]
        return classes[::-1]

    def _record_bases(self, of: ast.ClassDef) -> None:
        """Make a class and its bases share their attributes."""
        for base in self._bases(of):
            family = self._families[of]
            if self._families[base] is not family:
                family += self._families[base]
                self._families.update(dict.fromkeys(self._families[base], family))

    def _family(self, of: ast.ClassDef) -> ast.ClassDef:
        """Return the class under which the attributes of a class and its relatives are recorded."""
        return self._families[of][0]

    def bound(self, function: Function) -> CellVariable | None:
        """Return the variable that a function definition binds."""
        if isinstance(function, ast.Lambda):
            return None
        return self._named(function, function.name)

    def variable(self, node: ast.AST) -> CellVariable | None:
        """Return the variable for a name, parameter or attribute, or None for other nodes."""
        if isinstance(node, ast.Name | ast.arg):
            return self._named(node, node.id if isinstance(node, ast.Name) else node.arg)
        if isinstance(node, ast.Attribute):
            owner = self.kind(node.value) or self._only_class(node) or self.variable(node.value)
            return CellVariable(owner, node.attr) if owner is not None else None
        return None

    def _only_class(self, node: ast.Attribute) -> ast.ClassDef | None:
        """Return the only class that defines this attribute if the object comes from the cell."""
        classes = self._classes.get(node.attr, ())
        if len(classes) != 1 or not self.is_own(node.value):
            return None
        return next(iter(classes))

    def is_own(self, node: ast.expr) -> bool:
        """Return whether an expression begins with a name that the cell assigns or defines."""
        name: ast.AST = node
        while isinstance(name, ast.Attribute | ast.Subscript | ast.Call):
            name = name.func if isinstance(name, ast.Call) else name.value
        if not isinstance(name, ast.Name) or name.id in self._imported:
            return False
        return name.id in self._scopes[name].find(name.id).names

    def kind(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class from the cell that an expression names or instantiates, if known."""
        scope = self._scopes[node].node
        around = self.parents.get(scope)
        first = _first_parameter(scope) if isinstance(scope, _FUNCTIONS) else None
        if isinstance(around, ast.ClassDef) and isinstance(node, ast.Name) and node.id == first:
            return self._family(around)  # self
        if isinstance(node, ast.Call) and _is_super(node):
            method = self.function_around(node)
            around = self.parents.get(method) if method is not None else None
            return self._family(around) if isinstance(around, ast.ClassDef) else None
        for each in [node, *self.made(node)]:
            name = each.func if isinstance(each, ast.Call) else each
            if isinstance(name, ast.Name):
                for definition in self.functions.get(self._named(name, name.id), []):
                    if isinstance(definition, ast.ClassDef):
                        return self._family(definition)
        return None

    def made(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions that the cell assigns to a name or an attribute."""
        variable = self.variable(node)
        return self.values.get(variable, []) if variable is not None else []

    def called(self, function: ast.expr) -> list[Signature]:
        """Return the signatures of the cell's functions that a call to an expression may run."""
        if isinstance(function, ast.Lambda):
            return [self.signature(function)]
        variable = self.variable(function)
        definitions = self.functions.get(variable, []) if variable is not None else []
        return [each for definition in definitions for each in self._signatures(definition)]

    def referenced(self, node: ast.AST) -> list[Signature]:
        """Return the signatures of the cell's functions that an expression refers to."""
        signatures = [
            signature
            for each in ast.walk(node)
            if isinstance(each, ast.expr) and getattr(self.parents[each], "func", None) is not each
            for signature in self.called(each)
        ]
        return [each for each in signatures if each.named or each.rest or each.others]

    def _signatures(self, definition: Function | ast.ClassDef) -> Iterator[Signature]:
        if not isinstance(definition, ast.ClassDef):
            yield from () if is_property(definition) else (self.signature(definition),)
            return
        initializers = self.functions.get(CellVariable(self._family(definition), "__init__"), [])
        for each in initializers:
            if not isinstance(each, ast.ClassDef):
                yield self.signature(each)
        fields = [
            variable
            for kind in self._bases(definition)
            for node in kind.body
            if isinstance(node, ast.AnnAssign) and (variable := self.variable(node.target))
        ]
        if not initializers and fields:  # a dataclass or a NamedTuple
            yield Signature(fields, {field.name: field for field in fields}, None, None)

    def signature(self, function: Function) -> Signature:
        """Return a function's parameters, excluding ``self``."""
        parameters = function.args
        static = any(last_name(each) == "staticmethod" for each in _decorators(function))
        bound = isinstance(self.parents.get(function), ast.ClassDef) and not static
        positional = [*parameters.posonlyargs, *parameters.args][bound:]
        variables = {each.arg: self._named(each, each.arg) for each in positional}
        named = {each.arg: self._named(each, each.arg) for each in parameters.kwonlyargs}
        rest, others = (
            self._named(each, each.arg) if each is not None else None
            for each in (parameters.vararg, parameters.kwarg)
        )
        return Signature([*variables.values()], {**variables, **named}, rest, others)

    def with_default(self, parameters: ast.arguments, default: ast.expr) -> ast.arg | None:
        """Return the parameter whose default is the given expression."""
        positional = [*parameters.posonlyargs, *parameters.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(positional), reversed(parameters.defaults), strict=False),
            *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        ]
        return next((each for each, value in pairs if value is default), None)

    def function_around(self, node: ast.AST) -> Function | None:
        """Return the innermost function that contains a node."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, _FUNCTIONS):
                return node
        return None


def is_property(function: Function) -> bool:
    """Return whether a function is a property."""
    return any(last_name(each).endswith("property") for each in _decorators(function))


def _decorators(function: Function) -> list[ast.expr]:
    return getattr(function, "decorator_list", [])


def _is_super(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "super"


def _first_parameter(function: Function) -> str | None:
    parameters = [*function.args.posonlyargs, *function.args.args]
    return parameters[0].arg if parameters else None


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, _COMPREHENSIONS):
        return []  # the analysis may treat the first iterable like the others
    nodes: list[ast.AST] = list(getattr(node, "decorator_list", []))
    nodes += getattr(node, "bases", [])
    nodes += getattr(node, "keywords", [])
    returns = getattr(node, "returns", None)
    return [*nodes, returns] if returns is not None else nodes
