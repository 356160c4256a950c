"""Finds what a cell's text has of CUDA, and writes what the card has in its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from hpu_magic.runtime.porting import calls, imports
from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.devices import Devices
from hpu_magic.runtime.porting.findings import INACTIVE, MISSING, NOT_PORTED, REMARK, Finding
from hpu_magic.runtime.porting.source import Edit, Source
from hpu_magic.runtime.porting.tables import CUDA, Counterpart, counterpart, gpu_package
from hpu_magic.runtime.porting.texts import is_device

_TENSOR_TYPE = re.compile(r"torch\.cuda\.\w+Tensor")
_LITERAL = re.compile(r"[rRuU]?('''|\"\"\"|'|\").*\1", re.DOTALL)
# Where an expression with an operator may stand without parentheses.
_WITHOUT_PARENTHESES = (
    *(ast.If, ast.IfExp, ast.While, ast.Assert, ast.Assign, ast.BoolOp, ast.Call),
    *(ast.Return, ast.Lambda),
)
_SETTINGS = ("torch.backends.cudnn.", "torch.backends.cuda.")
# Of what torch.cuda.get_device_properties returns, which is a text on Gaudi.
_PROPERTIES = {
    "total_memory": "torch.hpu.mem_get_info()[1]",
    "name": "torch.hpu.get_device_name()",
}
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "HABANA_VISIBLE_MODULES chooses the cards",
    "CUDA_LAUNCH_BLOCKING": "PT_ENABLE_HABANA_STREAMASYNC=0 has the host wait",
    "PYTORCH_CUDA_ALLOC_CONF": "the card's allocator has no such settings",
}


class Rewriter(ast.NodeVisitor):
    """Collects the edits of one cell.

    Parameters
    ----------
    source : Source
        The cell as it was typed.
    tree : ast.Module
        The cell, or what IPython makes of it in the same lines.
    variables : mapping
        The notebook's variables.
    """

    def __init__(self, source: Source, tree: ast.Module, variables: Mapping[str, Any]) -> None:
        self.source = source
        self.bindings = Bindings(tree, variables)
        self.devices = Devices(tree, self.bindings)
        self.edits: list[Edit] = []
        self.findings: list[Finding] = []
        self.needs_torch = False
        self._parents: list[ast.AST] = []
        self._quote = "'" if source.text.count("'") > source.text.count('"') else '"'

    @property
    def parent(self) -> ast.AST:
        """What the node that is visited stands in."""
        return self._parents[-1] if self._parents else ast.Module([], [])

    def within(self, *kinds: type[ast.AST]) -> list[Any]:
        """Return what of these kinds is around the node that is visited, the outermost first."""
        return [node for node in self._parents if isinstance(node, kinds)]

    def visit(self, node: ast.AST) -> None:
        """Visit a node."""
        written = self.devices.written.get(node)
        if written is not None and isinstance(node, ast.expr) and not _is_plain(node):
            if self.replace(node, self.text(written)):
                self._remark(node)
            return
        if not _is_plain(node):
            self._remark(node)
        super().visit(node)

    def _remark(self, node: ast.AST) -> None:
        remark = self.devices.remarks.get(node)
        if remark is not None:
            self.note(node, REMARK, remark)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what a node consists of."""
        self._parents.append(node)
        super().generic_visit(node)
        self._parents.pop()

    def children(self, node: ast.AST, parts: list[Any]) -> None:
        """Visit some of a node's parts."""
        self._parents.append(node)
        for part in parts:
            self.visit(part)
        self._parents.pop()

    def text(self, value: str) -> str:
        """Write a text as the cell quotes its texts, and otherwise within a formatted one."""
        taken = self._quotes_taken()
        quote = self._quote if not taken else "'" if taken[-1] == '"' else '"'
        return f"{quote}{value}{quote}"

    def _quotes_taken(self) -> list[str]:
        """Return the quotes of the formatted texts around the node that is visited."""
        around = (self.source.of(each) for each in self.within(ast.JoinedStr))
        return [found[1] for text in around if (found := re.match(r"\w*(['\"])(?!\1\1)", text))]

    def replace(self, node: ast.expr, text: str) -> bool:
        """Put `text` in a node's place, if the node is in the cell as it was typed."""
        if not self.typed(node):
            self.note(node, REMARK, NOT_PORTED)
            return False
        start, end = self.source.start(node), self.source.end(node)
        self.edits.append(self.source.replaced(start, end, text, whole=True))
        return True

    def insert(self, offset: int, text: str) -> None:
        """Put `text` between two characters."""
        self.edits.append(Edit(offset, offset, text, text))

    def note(self, node: Any, kind: str, text: str) -> None:
        """Tell something of a node's line, once."""
        finding = Finding(node.lineno, kind, text)
        if finding not in self.findings:
            self.findings.append(finding)

    def typed(self, node: ast.expr | ast.stmt) -> bool:
        """Tell whether a node is in the cell as it was typed, at its place."""
        if len(set(self._quotes_taken())) > 1:
            return False  # before Python 3.12 no text can be written there
        text = self.source.of(node)
        try:
            if isinstance(node, ast.expr):
                found: ast.AST = ast.parse(f"({text}\n)", mode="eval").body
            else:
                [found] = ast.parse(text).body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(found) == ast.dump(node)

    # Names

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Map ``torch.cuda.*``, ``is_cuda`` and what else has another name on the card."""
        name = self.bindings.dotted(node)
        if name is not None and self.name(node, name):
            return
        if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
            self._is_cuda(node)
        elif node.attr in _PROPERTIES and calls.asks_properties(self, node.value):
            self.needs_torch = True
            self.replace(node, _PROPERTIES[node.attr])
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Map names that mean something of ``torch.cuda``, and see devices of earlier cells."""
        if not isinstance(node.ctx, ast.Load):
            return
        name = self.bindings.dotted(node)
        if name is not None and name != CUDA and self.name(node, name):
            return
        value = self.bindings.variable(node.id)
        device = type(value).__name__ == "device" and getattr(value, "type", "") == "cuda"
        if device or (is_device(value) and self.devices.reaches_device(node)):
            self.note(node, REMARK, f"{node.id} is {value!r}, made by another cell: port that one")

    def name(self, node: ast.Attribute | ast.Name, name: str) -> bool:
        """Map a full name; return whether it is one that the card has otherwise, or not."""
        found = counterpart(name)
        if found is None:
            return self._other_name(node, name)
        self.remark(node, name, found)
        if found.action == "name":
            self.rename(node, found.text)
        if found.text == "torch.amp.autocast":
            self.note(node, REMARK, "autocast is not called here: call it with the device, 'hpu'")
        return True

    def remark(self, node: Any, name: str, found: Counterpart) -> None:
        """Tell what the table says of a name."""
        if found.action == "name":
            if found.why:
                self.note(node, REMARK, f"{name}: {found.why.rstrip('.')}")
        elif found.action == "none":
            self.note(node, MISSING, f"{name} has no counterpart: {found.why}")
        else:
            self.note(node, INACTIVE, f"{name} has no counterpart and no effect: {found.why}")

    def rename(self, node: ast.expr, text: str) -> None:
        """Write another full name, unless the import gives its own name to what is meant."""
        if isinstance(node, ast.Name) and node.id in self.bindings.imported:
            return
        self.needs_torch = True
        self.replace(node, text)

    def _other_name(self, node: ast.Attribute | ast.Name, name: str) -> bool:
        if name == CUDA and isinstance(node, ast.Attribute):
            self.rename(node, "torch.hpu")
            return True
        if name.startswith(f"{CUDA}."):
            self.note(node, REMARK, f"{name} is not known, and stays as it is")
            return True
        if name.endswith("ProfilerActivity.CUDA") and isinstance(node, ast.Attribute):
            end = self.source.end(node)
            self.edits.append(self.source.replaced(end - len("CUDA"), end, "HPU"))
            return True
        if name in ("torch.Tensor.cuda", "torch.nn.Module.cuda"):
            self.note(node, REMARK, f"{name} is not called here, and is not ported")
            return True
        if name.startswith(_SETTINGS):
            self.note(node, INACTIVE, f"{name} has no effect on the card")
            return True
        if (package := gpu_package(name)) is not None and name.startswith("torch."):
            self.note(node, MISSING, f"{name} has no counterpart: {package[1]}")
            return True
        return False

    def _is_cuda(self, node: ast.Attribute) -> None:
        if not self.typed(node):
            self.replace(node, "")  # which says why it is not
            return
        end = self.source.end(node)
        self.children(node, [node.value])
        compared = f"device.type == {self.text('hpu')}"
        plain = isinstance(self.parent, _WITHOUT_PARENTHESES) or (
            isinstance(self.parent, ast.UnaryOp) and isinstance(self.parent.op, ast.Not)
        )
        if not plain:
            self.insert(self.source.start(node), "(")
        self.edits.append(
            self.source.replaced(end - len("is_cuda"), end, compared + ")" * (not plain))
        )

    # Texts

    def visit_Constant(self, node: ast.Constant) -> None:
        """Map the names of devices and backends."""
        if not isinstance(node.value, str) or isinstance(self.parent, ast.Expr | ast.JoinedStr):
            return
        if node.value in _ENVIRONMENT:
            self.note(node, REMARK, f"{node.value} means nothing here: {_ENVIRONMENT[node.value]}")
        if _TENSOR_TYPE.fullmatch(node.value):
            self.note(node, REMARK, f"{node.value} is not ported as a text: write device and dtype")
        if "nvidia-smi" in node.value:
            self.note(node, REMARK, "nvidia-smi sees no Gaudi: hl-smi and %hpu do")
        if _LITERAL.fullmatch(self.source.of(node)) is None:
            if ".cuda" in node.value and _is_magic(self.parent):
                self.note(node, REMARK, NOT_PORTED)
            return
        self._remark(node)
        if node in self.devices.written:
            self._inside(node, node.value, self.devices.written[node])

    def _inside(self, node: ast.Constant, value: str, mapped: str) -> None:
        """Write another value between a text's quotes, or the whole text where it has pieces."""
        place = self.source.of(node).find(value)
        if place < 0:
            self.replace(node, self.text(mapped))
            return
        start = self.source.start(node) + place
        self.edits.append(self.source.replaced(start, start + len(value), mapped))

    def visit_keyword(self, node: ast.keyword) -> None:
        """Map Lightning's ``accelerator="gpu"``."""
        value = node.value
        if node.arg == "accelerator" and isinstance(value, ast.Constant) and value.value == "gpu":
            self.replace(value, self.text("hpu"))
        else:
            self.generic_visit(node)

    # Statements and calls

    def visit_Import(self, node: ast.Import) -> None:
        """Map an import."""
        imports.plain(self, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Map an import."""
        imports.of_names(self, node)

    def visit_Call(self, node: ast.Call) -> None:
        """Map a call."""
        if not calls.mapped(self, node):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave out a call that has no counterpart and no effect."""
        call = node.value
        if isinstance(call, ast.Call) and (name := self.bindings.dotted(call.func)) is not None:
            found = counterpart(name)
            if found is not None and found.action == "value":
                self.remark(node, name, found)
                self._leave_out(node)
                return
        self.generic_visit(node)

    def _leave_out(self, node: ast.Expr) -> None:
        """Take a statement out, where others of its block remain and its lines are its own."""
        start, end = self.source.start(node), self.source.end(node)
        begins, ends = self.source.line_of(start)[0], self.source.line_of(end)[1]
        rest = self.source.text[end:ends].strip()
        indent = self.source.text[begins:start]
        alone = not indent.strip() and (not rest or rest.startswith("#"))
        if alone and self._others_remain(node) and self.typed(node):
            lost = "\n" * self.source.text.count("\n", start, ends + 1)
            self.edits.append(Edit(begins, ends + 1, "", f"{indent}pass{lost}"))
        elif self.typed(node):
            lost = "\n" * self.source.text.count("\n", start, end)
            self.edits.append(Edit(start, end, "pass", f"(None{lost})" if lost else "pass"))

    def _others_remain(self, node: ast.Expr) -> bool:
        blocks = (getattr(self.parent, name, ()) for name in ("body", "orelse", "finalbody"))
        [block] = [each for each in blocks if isinstance(each, list) and node in each]
        return any(not self._has_no_effect(each) for each in block)

    def _has_no_effect(self, statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        name = self.bindings.dotted(call.func) if isinstance(call, ast.Call) else None
        found = counterpart(name) if name else None
        return found is not None and found.action == "value"

    def decorators(self, node: Any) -> None:
        """Give the decorators that are called without arguments the card's."""
        for each in node.decorator_list:
            calls.bare_decorator(self, each)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit a function's decorators, and the function."""
        self.decorators(node)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]
    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant)


def _is_magic(node: ast.AST) -> bool:
    """Tell whether IPython put a call of a magic in a line's place."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_line_magic"
    )
