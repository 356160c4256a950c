"""Strings that look like a device or a backend: literals, concatenations and formatted strings."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.device_parameters import OTHERS, is_name

_DEVICE = re.compile(r"cuda(:\d+)?")
_CARD = re.compile(r"hpu(:\d+)?")
_BACKEND = re.compile(r"(cpu:gloo,)?(cuda:)?nccl")
_BEGINS = re.compile(r"cuda(:.*)?", re.DOTALL)
_FIELD = re.compile(r"%[ds]|\{\w*\}")

Part = str | ast.expr


@dataclass(eq=False)
class Text:
    """A string that looks like a device or a backend."""

    node: ast.expr
    text: str  # the string's value, or its source if it is formatted
    varies: bool = False  # whether its number is computed
    whole: bool = True  # whether the string contains only a device
    uses: set[str] = field(default_factory=set)  # its uses
    compared: list[ast.expr] = field(default_factory=list)
    """Expressions that the string is compared with, or containers that it is looked up in."""

    def named(self, name: str) -> bool:
        """Return whether a variable with this name holds a device (or a backend)."""
        return is_name(name, backend=self.backend)

    @property
    def backend(self) -> bool:
        """Whether the string looks like a torch.distributed backend."""
        return "nccl" in self.text and self.whole and not self.varies

    @property
    def shown(self) -> str:
        """The string as shown in a report."""
        return self.text if self.varies or not self.whole else f"'{self.text}'"

    @property
    def ported(self) -> str:
        """The string after porting, which has no number because a process has only one card."""
        if _CARD.fullmatch(self.text):
            return self.text
        if self.backend:
            return self.text.replace("nccl", "hccl").replace("cuda", "hpu")
        return "hpu"


def text_of(node: ast.expr, parent: ast.AST) -> Text | None:
    """Return the string literal in an expression if it looks like a device; otherwise, None."""
    if isinstance(node, ast.Constant) and isinstance(parent, ast.Expr):
        return None  # a docstring
    parts = _parts(node)
    first, rest = (parts[0], parts[1:]) if parts else ("", [])
    if not isinstance(first, str):
        return None
    if not rest and any(each.fullmatch(first) for each in (_DEVICE, _BACKEND, _CARD)):
        return Text(node, first)
    if len(rest) == 1 and first in ("cuda", "cuda:") and not isinstance(rest[0], str):
        return Text(node, ast.unparse(node), varies=True)
    if _BEGINS.fullmatch(first):
        return Text(node, ast.unparse(node), varies=bool(rest), whole=False)
    return None


def constant(node: ast.AST | None) -> str:
    """Return the value of a string literal, or "" for other expressions."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return text if isinstance(text, str) else ""


def is_device(value: object) -> bool:
    """Return whether a value is a string that names a GPU device."""
    return isinstance(value, str) and _DEVICE.fullmatch(value) is not None


def looks_like_device(node: ast.expr) -> bool:
    """Return whether an expression is a string that names a device of any type."""
    text = text_of(node, node)
    return constant(node) in OTHERS or (text is not None and text.whole and not text.backend)


def is_torch_device(call: ast.AST, bindings: Bindings) -> bool:
    """Return whether an expression is a call to ``torch.device``."""
    return isinstance(call, ast.Call) and bindings.dotted(call.func) == "torch.device"


def device_index(call: ast.AST, bindings: Bindings) -> ast.expr | None:
    """Return the index argument of ``torch.device("cuda", rank)``."""
    if not isinstance(call, ast.Call) or not is_torch_device(call, bindings):
        return None
    named = [each.value for each in call.keywords if each.arg == "index"]
    return next(iter([*call.args[1:2], *named]), None)


def _parts(node: ast.expr) -> list[Part]:
    """Return the strings and other values that an expression concatenates."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr():
            parts = [
                each.value if isinstance(each, ast.FormattedValue) else part
                for each in node.values
                for part in (_parts(each) or [each])
            ]
            return _joined(parts)
        case ast.BinOp(op=ast.Add()):
            sides = [_parts(each) or [each] for each in (node.left, node.right)]
            return _joined([*sides[0], *sides[1]])
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return _filled(text, node.right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _filled(text, node)
    return []


def pieces(node: ast.expr) -> list[ast.expr]:
    """Return the strings that make up a string expression, including their own parts."""
    strings: list[ast.expr] = []
    match node:
        case ast.JoinedStr():
            strings = [each for each in node.values if isinstance(each, ast.Constant)]
        case ast.BinOp(op=ast.Add()) if _parts(node):
            strings = [each for each in (node.left, node.right) if _parts(each)]
        case ast.BinOp(left=ast.Constant() as text, op=ast.Mod()):
            strings = [text]
        case ast.Call(func=ast.Attribute(value=ast.Constant() as text, attr="format")):
            strings = [text]
    return [*strings, *(each for part in strings for each in pieces(part))]


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for each in parts:
        if isinstance(each, str) and joined and isinstance(joined[-1], str):
            joined[-1] += each
        else:
            joined.append(each)
    return joined


def _filled(text: str, value: ast.expr) -> list[Part]:
    """Return the parts of a string such as ``"cuda:%d" % rank``, with fields replaced by values."""
    pieces = _FIELD.split(text)
    parts: list[Part] = [pieces[0]]
    for piece in pieces[1:]:
        parts += [value, piece] if piece else [value]
    return parts
