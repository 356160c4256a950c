"""Which texts of a cell name a device, and which only look like one.

A text is a device if it reaches something that takes a device. Its other uses decide whether it
may be rewritten: texts that become file names or keys must stay different from each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.flow import KEY, Flow, is_numbered
from hpu_magic.runtime.porting.names import Names
from hpu_magic.runtime.porting.takers import OTHERS, last_name, takes
from hpu_magic.runtime.porting.texts import Text, device_index, is_torch_device, pieces, text_of

# How a text is used.
TAKEN = "taken"  # by something that takes a device
INDEXED = "indexed"  # compared with a tensor's device, which has a number
NAMED = "named"  # has a device's name, or is chosen between devices
COMPARED = "compared"  # with another value
TEXT = "text"  # part of another text, or a key
OPAQUE = "opaque"  # passed to what the cell does not define
SAVED = "saved"  # names a device in a saved file
_TYPE = "type"  # of what a text is compared with
_OBSERVED = {COMPARED, TEXT, OPAQUE}

_SEARCHES = ("startswith", "find", "count", "index", "rfind")
_FORMATS = ("format", "str", "repr", "join")
_SHOWS = (
    *("print", "log", "debug", "info", "warning", "warn", "error", "critical", "exception"),
    *("write", "display", "set_description", "isinstance", "type", "len", "id"),
)
_MORE = "is more than the name of a device, and stays"
_NOWHERE = "reaches nothing that takes a device, and stays"
_STORED = "names a device in a saved file, and stays"
_ONE = "a process has one card, hpu:0, whichever its number is"
_ALSO = "is used as other text too, and is {!r} there as well"
_SEVERAL = (
    "is used as other text too, where several devices would become one: it stays, "
    "use another text there"
)


class Devices:
    """The texts of one cell.

    Attributes
    ----------
    written : dict
        For each text that names a device, the text for the card.
    remarks : dict
        What a reader should know about a text.
    """

    def __init__(self, tree: ast.Module, bindings: Bindings) -> None:
        self._names = Names(tree)
        self._bindings = bindings
        self._flow = Flow(self._names, bindings)
        self._origins: dict[ast.expr, list[Text]] = {}
        texts = list(self._found(tree))
        for text in texts:
            for carrier, path in self._flow.carriers(text.node) if text.whole else ():
                text.places.add((carrier, path))
                text.uses.update(self._uses(text, carrier, path))
                if not path:
                    self._origins.setdefault(carrier, []).append(text)
        self.written: dict[ast.AST, str] = {}
        self.remarks: dict[ast.AST, str] = {}
        self._write(texts, self._devices(texts))

    def reaches_device(self, node: ast.expr) -> bool:
        """Return whether a value reaches something that takes a device."""
        carriers = self._flow.carriers(node)
        return any(self._is_taken(Text(node, "cuda"), each) for each, _ in carriers)

    def _found(self, tree: ast.Module) -> Iterator[Text]:
        within: set[ast.AST] = set()
        for node in ast.walk(tree):  # the outermost first
            if not isinstance(node, ast.expr) or node in within:
                continue
            within.update(pieces(node))
            text = text_of(node, self._names.parents[node])
            if text is not None and (text.whole or not self._is_shown(node)):
                yield self._with_index(text)

    def _with_index(self, text: Text) -> Text:
        """Regard the number of ``torch.device("cuda", rank)`` as a part of the text."""
        call = self._names.parents[text.node]
        call = self._names.parents[call] if isinstance(call, ast.keyword) else call
        index = device_index(call, self._bindings)
        if index is not None and text.text == "cuda":
            text.varies = not isinstance(index, ast.Constant)
            text.text = ast.unparse(call) if text.varies else f"cuda:{ast.unparse(index)}"
        return text

    # Decisions

    def _devices(self, texts: list[Text]) -> set[Text]:
        """Return the texts that are devices, also those that are compared with one."""
        found = {
            each
            for each in texts
            if each.uses & {TAKEN, INDEXED} or (NAMED in each.uses and TEXT not in each.uses)
        }
        while True:
            more = {
                each
                for each in texts
                if each not in found and any(self._among(other, found) for other in each.compared)
            }
            if not more:
                return found
            found |= more

    def _among(self, node: ast.expr, devices: set[Text]) -> bool:
        return any(each in devices for each in self._origins.get(_bare(node), ()))

    def _kept(self, devices: set[Text]) -> set[Text]:
        """Return the devices that stay: as the same text, they would no longer differ."""
        kept: set[Text] = set()
        for group in _groups(devices):
            observed = [
                each
                for each in group
                if each.uses & _OBSERVED or (INDEXED in each.uses and not each.varies)
            ]
            varies = any(each.varies and each.uses & _OBSERVED for each in observed)
            if varies or len({each.text for each in observed}) > 1:
                kept.update(observed)
        return kept

    def _write(self, texts: list[Text], devices: set[Text]) -> None:
        kept = self._kept(devices)
        for each in texts:
            remark = ""
            if each in devices - kept:
                numbered = INDEXED in each.uses and (each.varies or ":" in each.text)
                self.written[each.node] = "hpu:0" if numbered else each.ported
                also = f"{each.shown} {_ALSO.format(self.written[each.node])}"
                remark = also if TEXT in each.uses else _ONE * each.varies
            elif each in kept:
                remark = f"{each.shown} {_SEVERAL}"
            elif SAVED in each.uses:
                remark = f"{each.shown} {_STORED}"
            else:
                remark = f"{each.shown} {_NOWHERE if each.whole else _MORE}"
            if remark:
                self.remarks[each.node] = remark

    # Uses

    def _uses(self, text: Text, node: ast.expr, path: str) -> Iterator[str]:
        """Yield how an expression that has the text is used."""
        parent = self._names.parents[node]
        key = path[:1] == KEY
        if self._is_taken(text, node):
            yield SAVED if key else TAKEN
        elif not key and (text.named(last_name(node)) or self._is_named(text, node, parent)):
            yield NAMED
        elif isinstance(parent, ast.Call | ast.keyword):
            yield from self._passed(text, node, path)
        match parent:
            case ast.Compare() if len(path) < 2:
                for other in [parent.left, *parent.comparators]:
                    if other is not node:
                        yield from self._compared(text, node, other, exact=_is_exact(parent))
            case ast.MatchValue():
                yield from self._compared(text, node, self._subject(parent))
            case ast.Subscript() if node is parent.slice:
                yield COMPARED if self._is_dict(parent.value) else TEXT
            case ast.Subscript() if key:
                yield from self._compared(text, node, parent.slice)
            case ast.Attribute():
                yield from self._method(text, node, path)
            case ast.Dict() if any(node is each for each in parent.keys) and not path:
                yield COMPARED
            case ast.Set() if not path:
                yield COMPARED
            case ast.BinOp() | ast.FormattedValue() if not path and not self._is_shown(parent):
                if not isinstance(parent, ast.FormattedValue) or not self._is_first(parent):
                    yield TEXT

    def _is_taken(self, text: Text, node: ast.expr) -> bool:
        """Return whether a value is passed to what takes a device, by position or by name."""
        parent = self._names.parents[node]
        match parent:
            case ast.keyword():
                call = self._names.parents[parent]
                of_device = parent.arg == "type" and is_torch_device(call, self._bindings)
                option = parent.arg in ("default", "const", "choices")
                names = map(constant, call.args if isinstance(call, ast.Call) and option else ())
                return of_device or text.named(parent.arg or "") or any(map(text.named, names))
            case ast.Call() if node is not parent.func:
                place = parent.args.index(node)
                # settings.get("device", "cuda"), add_argument("--device", "cuda")
                named = any(text.named(constant(each)) for each in parent.args[:place])
                return named or takes(parent, place, self._bindings, backend=text.backend)
            case ast.Dict():
                pairs = zip(parent.keys, parent.values, strict=True)
                return any(node is value and text.named(constant(key)) for key, value in pairs)
            case ast.List() | ast.Tuple():
                before = parent.elts[: parent.elts.index(node)][-1:]
                before_it = constant(before[0]) if before else ""
                return before_it.startswith("--") and text.named(before_it)
            case ast.Assign():
                slices = [each.slice for each in parent.targets if isinstance(each, ast.Subscript)]
                return any(text.named(constant(each)) for each in slices)
        return False

    def _is_named(self, text: Text, node: ast.expr, parent: ast.AST) -> bool:
        """Return whether a value gets a device's name, or is one of several devices."""
        match parent:
            case ast.Return():
                return text.named(last_name(self._names.function_around(node)))
            case ast.arguments():
                parameter = self._names.with_default(parent, node)
                return parameter is not None and text.named(parameter.arg)
            case ast.BoolOp():
                return any(text.named(last_name(each)) for each in parent.values)
            case ast.IfExp() if node is not parent.test:
                asked = [str(self._bindings.dotted(each)) for each in ast.walk(parent.test)]
                available = any(each.startswith(("torch.cuda.", "torch.hpu.")) for each in asked)
                return available or _is_other(parent.body) or _is_other(parent.orelse)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                values = [value for each in targets for value in self._values(each)]
                named = any(text.named(last_name(each)) for each in targets)
                return named or any(map(_is_other, values))
        return False

    def _values(self, node: ast.expr) -> list[ast.expr]:
        variable = self._names.variable(node)
        return self._names.values.get(variable, []) if variable is not None else []

    def _passed(self, text: Text, node: ast.expr, path: str) -> Iterator[str]:
        """Yield the use as an argument of what does not take a device."""
        parent = self._names.parents[node]
        call = self._names.parents[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or node is call.func:
            return
        function = last_name(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if owner is not None and function in _SEARCHES:
            yield from self._compared(text, node, owner, exact=False)
        elif owner is not None and function in ("get", "pop") and node is call.args[0]:
            yield COMPARED if self._is_dict(owner) else TEXT
        elif function.startswith("assert") and len(call.args) > 1 and node in call.args[:2]:
            yield from self._compared(text, node, call.args[node is call.args[0]])
        elif function in _FORMATS and not path:
            yield from () if self._is_shown(call) or function == "str" else (TEXT,)
        elif function not in _SHOWS and not self._names.called(call):
            yield from () if self._flow.follows(node, path) else (OPAQUE,)

    def _method(self, text: Text, node: ast.expr, path: str) -> Iterator[str]:
        """Yield the use of a method or an attribute of a value, or of a dict with it as a key."""
        attribute = self._names.parents[node]
        call = self._names.parents[attribute]
        assert isinstance(attribute, ast.Attribute)
        if path == KEY and attribute.attr in ("get", "pop") and isinstance(call, ast.Call):
            yield from self._compared(text, node, call.args[0]) if call.args else ()
        elif not path and attribute.attr == "index" and not isinstance(call, ast.Call):
            yield from (INDEXED, TEXT)
        elif not path and isinstance(call, ast.Call) and attribute.attr not in _SEARCHES:
            yield from () if self._flow.follows(node, path) else (TEXT,)

    def _compared(
        self, text: Text, node: ast.expr, other: ast.expr | None, *, exact: bool = True
    ) -> Iterator[str]:
        """Yield the use in a comparison: with a device, with a device's type, with other text."""
        if other is None or _is_other(other):
            return
        text.compared.append(other)
        text.places |= {(_bare(other), ""), (self._names.variable(_bare(other)) or text, "")}
        written = node is text.node and _bare(other) is other
        kind = self._compared_with(text, other)
        if kind == INDEXED and written:
            kind = TAKEN  # a text is equal to a text only
        yield from (TAKEN,) if kind == _TYPE else (kind,) if kind else ()
        if exact and kind not in (_TYPE, INDEXED):
            yield COMPARED

    def _compared_with(self, text: Text, node: ast.expr, deep: int = 3) -> str:
        """Return what kind of device an expression is, "" if it is none as far as can be seen."""
        node = _bare(node)
        if isinstance(node, ast.Attribute) and node.attr == "type":
            return _TYPE
        if isinstance(node, ast.Subscript) and _is_split(node.value):
            return _TYPE  # device.split(":")[0]
        values = self._values(node)
        if values:
            kinds = [self._compared_with(text, each, deep - 1) for each in values if deep]
            variable = self._names.variable(node)
            taken = any(self._is_taken(text, each) for each, _ in self._flow.reads(variable, ""))
            return next(filter(None, kinds), TAKEN if taken else "")
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return INDEXED
        named = last_name(node.func if isinstance(node, ast.Call) else node)
        if text.named(named):
            return TAKEN
        reads = self._flow.reads(self._names.variable(node), "")
        return TAKEN if any(self._is_taken(text, each) for each, _ in reads) else ""

    # What is around an expression

    def _is_dict(self, node: ast.expr) -> bool:
        return any(
            isinstance(each, ast.Dict | ast.DictComp) for each in [node, *self._values(node)]
        )

    def _is_first(self, node: ast.FormattedValue) -> bool:
        """Return whether a value is the kind in ``f"{kind}:{rank}"``."""
        whole = self._names.parents[node]
        return isinstance(whole, ast.JoinedStr) and is_numbered(whole) and whole.values[0] is node

    def _is_shown(self, node: ast.AST) -> bool:
        """Return whether a text is only shown to a reader."""
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


def constant(node: ast.AST | None) -> str:
    """Return the text that an expression is, "" for any other."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return text if isinstance(text, str) else ""


def _is_other(node: ast.expr) -> bool:
    """Return whether an expression names another device, or nothing."""
    if isinstance(node, ast.Call) and last_name(node.func) == "device":
        return bool(node.args) and _is_other(node.args[0])
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_other, node.elts))
    return isinstance(node, ast.Constant) and (node.value is None or constant(node) in OTHERS)


def _is_exact(node: ast.Compare) -> bool:
    """Return whether a comparison is no search for a part of a text."""
    search = isinstance(node.ops[0], ast.In | ast.NotIn)
    return not search or not isinstance(node.left, ast.Constant)


def _groups(texts: set[Text]) -> list[set[Text]]:
    """Return the texts that come to the same places, or are compared with each other, together."""
    groups: list[tuple[set[Text], set[object]]] = []
    for each in texts:
        texts_of, places = {each}, set(each.places)
        apart = []
        for group in groups:
            if group[1] & places:
                texts_of |= group[0]
                places |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (texts_of, places)]
    return [texts_of for texts_of, _ in groups]


def _is_split(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "split"


def _bare(node: ast.expr) -> ast.expr:
    """Return what ``str(x)`` and ``x.lower()`` take."""
    while isinstance(node, ast.Call):
        if last_name(node.func) == "str" and len(node.args) == 1:
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip"):
            node = node.func.value
        else:
            break
    return node
