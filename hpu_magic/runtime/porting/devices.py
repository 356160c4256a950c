"""Distinguish strings in a cell that are devices from strings that only look like devices.

A string counts as a device if it reaches a device parameter. The other uses of a string determine
whether it can be replaced: strings that become file names or keys must remain different from each
other.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.device_parameters import OTHERS, last_name, takes
from hpu_magic.runtime.porting.device_strings import (
    Text,
    constant,
    device_index,
    is_torch_device,
    pieces,
    text_of,
)
from hpu_magic.runtime.porting.findings import ONE_CARD
from hpu_magic.runtime.porting.flow import (
    ANYWHERE,
    ITEM,
    KEY,
    LOOKUPS,
    TEXTS,
    Carrier,
    Flow,
    Path,
    is_numbered,
)
from hpu_magic.runtime.porting.names import Names

# How a string is used.
TAKEN = "taken"  # the string is passed as a device
INDEXED = "indexed"  # the string is compared with a tensor's device, which includes an index
NAMED = "named"  # the string is assigned to a device name, or chosen from several devices
COMPARED = "compared"  # the string is compared with another value
TEXT = "text"  # the string is part of another string, or a key
OPAQUE = "opaque"  # the string is passed to a function that the cell does not define
SAVED = "saved"  # the string is a device in a saved file
_TYPE = "type"  # the string is compared with the type of a device
_OBSERVED = {COMPARED, TEXT, OPAQUE}

_EXACT_SEARCHES = ("count", "index", "remove")
_SEARCHES = ("startswith", "endswith", "find", "rfind", *_EXACT_SEARCHES)
_CHANGES = ("replace", "removeprefix", "removesuffix", "partition")
_FORMATS = ("format", "str", "repr", "join")
_UNIQUE = ("set", "frozenset", "dict", "fromkeys", "Counter", "OrderedDict", "add")
_EQUALITIES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
# Paths to a string in a compared value or in a searched container.
_ALIKE = ((), (ITEM,), (KEY,), (ANYWHERE,))
_MOST = 8  # number of positions to check in a call with * arguments
_SHOWS = (
    *("print", "log", "debug", "info", "warning", "warn", "error", "critical", "exception"),
    *("write", "display", "set_description", "isinstance", "type", "len", "id"),
)
_MORE = "contains settings other than the device and was not changed"
_NOWHERE = "is not used as a device and was not changed"
_STORED = "is a device in a saved file and was not changed"
_ALSO = "is also used as ordinary text, which becomes {!r} too"
_SEVERAL = (
    "is also used as ordinary text, and several devices would be replaced with the same text, so "
    "it was not changed: use separate strings for devices and for other text"
)


class Devices:
    """Finds the device strings in a cell, their replacements (`written`) and `remarks` on them."""

    def __init__(self, tree: ast.Module, bindings: Bindings) -> None:
        self._names = Names(tree)
        self._bindings = bindings
        self._flow = Flow(self._names, bindings)
        self._origins: dict[ast.expr, list[Text]] = defaultdict(list)
        texts = list(self._texts(tree))
        for text in texts:
            for carrier, path in self._carriers(text) if text.whole else ():
                text.uses.update(self._uses(text, carrier, path))
                if path in _ALIKE:
                    self._origins[carrier].append(text)
        self.written: dict[ast.AST, str] = {}
        self.remarks: dict[ast.AST, str] = {}
        self._write(self._groups(texts))

    def reaches_device(self, node: ast.expr) -> bool:
        """Return whether a value is passed as a device."""
        text = Text(node, "cuda")
        return any(self._is_taken(text, each) for each, _ in self._carriers(text))

    def _carriers(self, text: Text) -> list[Carrier]:
        return self._flow.carriers(
            text.node, lambda each: self._is_taken(text, each) or self._is_shown(each)
        )

    def _texts(self, tree: ast.Module) -> Iterator[Text]:
        within: set[ast.AST] = set()
        for node in ast.walk(tree):  # visits outer nodes first
            if not isinstance(node, ast.expr) or node in within:
                continue
            within.update(pieces(node))
            text = text_of(node, self._names.parents[node])
            if text is not None and (text.whole or not self._is_shown(node)):
                yield self._with_index(text)

    def _with_index(self, text: Text) -> Text:
        """Add the number in ``torch.device("cuda", rank)`` to the string."""
        call = self._names.parents[text.node]
        call = self._names.parents[call] if isinstance(call, ast.keyword) else call
        index = device_index(call, self._bindings)
        if index is not None and text.text == "cuda":
            text.varies = not isinstance(index, ast.Constant)
            text.text = ast.unparse(call) if text.varies else f"cuda:{ast.unparse(index)}"
        return text

    # Decisions

    def _groups(self, texts: list[Text]) -> list[list[Text]]:
        """Group strings that are compared with each other or used with the same dict."""
        groups = {each: [each] for each in texts}
        for text in texts:
            for other in text.compared:
                for each in self._origins.get(_bare(other), ()):
                    if groups[each] is not groups[text]:
                        groups[text] += groups[each]
                        groups.update(dict.fromkeys(groups[each], groups[text]))
        return list({id(each): each for each in groups.values()}.values())

    def _write(self, groups: list[list[Text]]) -> None:
        """Replace either all strings in a group or none of them."""
        devices = [group for group in groups if any(map(_is_device, group))]
        kept = _kept([each for group in devices for each in group])
        for group in groups:
            stays = not kept.isdisjoint(group)
            numbered = any(INDEXED in each.uses for each in group)
            for each in group:
                if each.ported == each.text:
                    continue
                remark = ""
                if group in devices and not stays:
                    with_number = numbered and (each.varies or ":" in each.text)
                    self.written[each.node] = "hpu:0" if with_number else each.ported
                    also = f"{each.shown} {_ALSO.format(self.written[each.node])}"
                    remark = also if TEXT in each.uses else ONE_CARD * each.varies
                elif group in devices:
                    remark = f"{each.shown} {_SEVERAL}"
                elif SAVED in each.uses:
                    remark = f"{each.shown} {_STORED}"
                else:
                    remark = f"{each.shown} {_NOWHERE if each.whole else _MORE}"
                if remark:
                    self.remarks[each.node] = remark

    # Uses

    def _uses(self, text: Text, node: ast.expr, path: Path) -> Iterator[str]:
        """Yield the uses of an expression that contains the string."""
        parent = self._names.parents[node]
        key = path[:1] == (KEY,)
        plain = path in ((), (ANYWHERE,))
        if self._is_taken(text, node):
            yield SAVED if key else TAKEN
        elif not key and (text.named(last_name(node)) or self._is_named(text, node, parent)):
            yield NAMED
        elif isinstance(parent, ast.Call | ast.keyword | ast.Starred):
            yield from self._passed(text, node, path)
        match parent:
            case ast.Compare() if path in _ALIKE:
                for other in [parent.left, *parent.comparators]:
                    if other is not node and isinstance(parent.ops[0], _EQUALITIES):
                        yield from self._compared(text, node, other, exact=_is_exact(parent))
            case ast.MatchValue():
                yield from self._compared(text, node, self._subject(parent))
            case ast.Subscript() if node is parent.slice:
                yield from self._looked_up(text, parent.value)
            case ast.Subscript() if key:
                yield from self._compared(text, node, parent.slice)
            case ast.Attribute():
                yield from self._method(text, node, path)
            case ast.Dict() if any(node is each for each in parent.keys):
                yield COMPARED
            case ast.DictComp() if node is parent.key:
                yield COMPARED
            case ast.Set() | ast.SetComp():
                yield COMPARED
            case ast.BinOp() | ast.FormattedValue() | ast.AugAssign() | ast.Subscript():
                part = isinstance(parent, ast.FormattedValue) and self._is_first(parent)
                filled = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mod)
                if (plain or filled) and not part and not self._is_shown(parent):
                    yield TEXT if path != (ANYWHERE,) else OPAQUE

    def _is_taken(self, text: Text, node: ast.expr) -> bool:
        """Return whether a value is passed as a device, by position or by name."""
        parent = self._names.parents[node]
        match parent:
            case ast.keyword():
                call = self._names.parents[parent]
                of_device = parent.arg == "type" and is_torch_device(call, self._bindings)
                of_option = parent.arg in ("default", "const", "choices")
                names = map(constant, call.args if isinstance(call, ast.Call) and of_option else ())
                return of_device or text.named(parent.arg or "") or any(map(text.named, names))
            case ast.Starred():
                call = self._names.parents[parent]
                return isinstance(call, ast.Call) and self._takes(text, call, parent)
            case ast.Call() if node is not parent.func:
                # settings.get("device", "cuda"), add_argument("--device", "cuda")
                before = parent.args[: parent.args.index(node)]
                named = any(text.named(constant(each)) for each in before)
                return named or self._takes(text, parent, node)
            case ast.Dict():
                pairs = zip(parent.keys, parent.values, strict=True)
                return any(node is value and text.named(constant(key)) for key, value in pairs)
            case ast.List() | ast.Tuple():
                before = parent.elts[: parent.elts.index(node)][-1:]
                option = constant(before[0]) if before else ""
                return option.startswith("--") and text.named(option)
            case ast.Assign():
                slices = [each.slice for each in parent.targets if isinstance(each, ast.Subscript)]
                return any(text.named(constant(each)) for each in slices)
        return False

    def _takes(self, text: Text, call: ast.Call, argument: ast.expr) -> bool:
        """Return whether an argument is a device for the call or for a torch function in it."""
        place = call.args.index(argument)
        starred = any(isinstance(each, ast.Starred) for each in call.args[: place + 1])
        places = range(place, _MOST if starred else place + 1)
        if takes(call.func, places, self._bindings, backend=text.backend):
            return True
        return any(  # partial(torch.Tensor.to, x, "cuda"), map(torch.device, devices)
            takes(each, [place - i - 1], self._bindings, backend=text.backend)
            for i, each in enumerate(call.args[:place])
            if (self._bindings.dotted(each) or "").startswith("torch.")
            or last_name(getattr(each, "value", None)) == "Tensor"
        )

    def _is_named(self, text: Text, node: ast.expr, parent: ast.AST) -> bool:
        """Return whether a value is assigned to a device name, or chosen from several devices."""
        match parent:
            case ast.Return():
                return text.named(last_name(self._names.function_around(node)))
            case ast.arguments():
                parameter = self._names.with_default(parent, node)
                return parameter is not None and text.named(parameter.arg)
            case ast.BoolOp():
                return any(text.named(last_name(each)) for each in parent.values)
            case ast.IfExp() if node is not parent.test:
                names = [str(self._bindings.dotted(each)) for each in ast.walk(parent.test)]
                available = any(each.startswith(("torch.cuda.", "torch.hpu.")) for each in names)
                return available or _is_other(parent.body) or _is_other(parent.orelse)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                values = [value for each in targets for value in self._values(each)]
                named = any(text.named(last_name(each)) for each in targets)
                return named or any(map(_is_other, values))
        return False

    def _values(self, node: ast.expr) -> list[ast.expr]:
        return self._names.made(node)

    def _passed(self, text: Text, node: ast.expr, path: Path) -> Iterator[str]:
        """Yield the uses of a value that is passed to a parameter that is not a device."""
        parent = self._names.parents[node]
        call = parent if isinstance(parent, ast.Call) else self._names.parents[parent]
        if not isinstance(call, ast.Call) or node is call.func:
            return
        function = last_name(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        first = node in call.args[:1]
        if owner is not None and function in (*_SEARCHES, *_CHANGES) and first:
            yield from self._compared(text, node, owner, exact=function in _EXACT_SEARCHES)
        elif owner is not None and function in LOOKUPS and first:
            yield from self._looked_up(text, owner)
        elif function.startswith("assert") and len(call.args) > 1 and node in call.args[:2]:
            yield from self._compared(text, node, call.args[first])
        elif function in _FORMATS:
            shown = self._is_shown(call) or function == "str"
            yield from () if shown or path[:1] == (ANYWHERE,) else (TEXT,)
        elif function in _UNIQUE and path[:1] in ((), (ITEM,), (ANYWHERE,)):
            yield COMPARED
        elif not self._is_shown(call) and not self._flow.called(call):
            yield from () if self._flow.follows(node, path) else (OPAQUE,)

    def _looked_up(self, text: Text, container: ast.expr) -> Iterator[str]:
        """Yield the uses of a string that is looked up in a container."""
        text.compared.append(container)
        made = [container, *self._values(container)]
        yield COMPARED if any(isinstance(each, ast.Dict | ast.DictComp) for each in made) else TEXT

    def _method(self, text: Text, node: ast.expr, path: Path) -> Iterator[str]:
        """Yield the uses of a value in its attributes and methods, or in those of its container."""
        attribute = self._names.parents[node]
        call = self._names.parents[attribute]
        assert isinstance(attribute, ast.Attribute)
        called = isinstance(call, ast.Call) and call.func is attribute
        if path == (KEY,) and attribute.attr in LOOKUPS and isinstance(call, ast.Call):
            yield from self._compared(text, node, call.args[0]) if call.args else ()
        elif path == (ITEM,) and attribute.attr in _EXACT_SEARCHES:
            yield COMPARED
        elif not path and attribute.attr == "index" and not called:
            yield from (INDEXED, TEXT)
        elif not path and called and attribute.attr not in _SEARCHES:
            yield from () if attribute.attr in TEXTS else (TEXT,)

    def _compared(
        self, text: Text, node: ast.expr, other: ast.expr | None, *, exact: bool = True
    ) -> Iterator[str]:
        """Yield the uses in a comparison with a device, a device type, or other text."""
        if other is None or _is_other(other):
            return
        text.compared.append(other)
        written = node is text.node and _bare(other) is other
        kind = self._compared_with(text, other)
        if kind == INDEXED and written:
            kind = TAKEN  # a string can only be equal to another string
        yield from (TAKEN,) if kind == _TYPE else (kind,) if kind else ()
        if exact and kind not in (_TYPE, INDEXED):
            yield COMPARED

    def _compared_with(self, text: Text, node: ast.expr, deep: int = 3) -> str:
        """Return the use of a string that is compared with `node`; "" if `node` is not a device."""
        node = _bare(node)
        if isinstance(node, ast.Attribute) and node.attr == "type":
            return _TYPE
        if isinstance(node, ast.Subscript) and _is_split(node.value):
            return _TYPE  # device.split(":")[0]
        values = self._values(node)
        if values:
            kinds = [self._compared_with(text, each, deep - 1) for each in values if deep]
            variable = self._names.variable(node)
            taken = any(self._is_taken(text, each) for each, _ in self._flow.reads(variable, ()))
            return next(filter(None, kinds), TAKEN if taken else "")
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return INDEXED
        if text.named(last_name(node.func if isinstance(node, ast.Call) else node)):
            return TAKEN
        reads = self._flow.reads(self._names.variable(node), ())
        return TAKEN if any(self._is_taken(text, each) for each, _ in reads) else ""

    # Context of an expression

    def _is_first(self, node: ast.FormattedValue) -> bool:
        """Return whether a value is the device type in ``f"{type}:{rank}"``."""
        whole = self._names.parents[node]
        return isinstance(whole, ast.JoinedStr) and is_numbered(whole) and whole.values[0] is node

    def _is_shown(self, node: ast.AST) -> bool:
        """Return whether a string is only displayed."""
        while not isinstance(node, ast.stmt):
            function = last_name(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and function not in _FORMATS:
                return function in _SHOWS or function.endswith(("Error", "Exception", "Warning"))
            if isinstance(node, ast.Subscript | ast.Dict | ast.Compare):
                return False
            node = self._names.parents[node]
        return isinstance(node, ast.Raise | ast.Assert | ast.Expr)

    def _subject(self, node: ast.AST) -> ast.expr:
        while not isinstance(node, ast.Match):
            node = self._names.parents[node]
        return node.subject


def _is_other(node: ast.expr) -> bool:
    """Return whether an expression is None or a device other than a GPU."""
    if isinstance(node, ast.Call) and last_name(node.func) == "device":
        return bool(node.args) and _is_other(node.args[0])
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_other, node.elts))
    return isinstance(node, ast.Constant) and (node.value is None or constant(node) in OTHERS)


def _is_device(text: Text) -> bool:
    named = NAMED in text.uses and TEXT not in text.uses
    return named or not text.uses.isdisjoint((TAKEN, INDEXED))


def _kept(devices: list[Text]) -> set[Text]:
    """Return the strings that stay unchanged because they must differ but would become equal.

    The function considers all strings in the cell that are not only used as devices.
    """
    observed = {each for each in devices if each.uses & _OBSERVED}
    varies = any(each.varies for each in observed)
    compared = {
        each for each in devices if INDEXED in each.uses and (each.varies or ":" in each.text)
    }
    several = varies or len({each.text for each in observed}) > 1
    kept = observed if several else set()
    return kept | compared if len({each.text for each in compared}) > 1 else kept


def _is_exact(node: ast.Compare) -> bool:
    """Return whether a comparison is exact, i.e. does not search for a substring."""
    search = isinstance(node.ops[0], ast.In | ast.NotIn)
    return not search or not isinstance(node.left, ast.Constant)


def _is_split(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "split"


def _bare(node: ast.expr) -> ast.expr:
    """Return ``x`` for expressions such as ``str(x)`` and ``x.lower()``."""
    while isinstance(node, ast.Call):
        if last_name(node.func) == "str" and len(node.args) == 1:
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip"):
            node = node.func.value
        else:
            break
    return node
