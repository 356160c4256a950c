"""Convert the names, strings and statements in a cell."""

from __future__ import annotations

import ast
import re
from typing import Any

from hpu_magic.runtime.porting import calls, imports
from hpu_magic.runtime.porting.cell import Cell
from hpu_magic.runtime.porting.device_strings import is_device
from hpu_magic.runtime.porting.findings import INACTIVE, MISSING, NOT_PORTED, REMARK
from hpu_magic.runtime.porting.source import Edit
from hpu_magic.runtime.porting.tables import CUDA, counterpart, gpu_package

_TENSOR_TYPE = re.compile(r"torch\.cuda\.\w+Tensor")
_LITERAL = re.compile(r"[rRuU]?('''|\"\"\"|'|\").*\1", re.DOTALL)
# Parent nodes in which an expression with an operator does not need parentheses.
_WITHOUT_PARENTHESES = (
    *(ast.If, ast.IfExp, ast.While, ast.Assert, ast.Assign, ast.BoolOp, ast.Call),
    *(ast.Return, ast.Lambda),
)
_SETTINGS = ("torch.backends.cudnn.", "torch.backends.cuda.")
# Replacements for attributes of torch.cuda.get_device_properties(), which returns a string on
# Gaudi.
_PROPERTIES = {
    "total_memory": "torch.hpu.mem_get_info()[1]",
    "name": "torch.hpu.get_device_name()",
}
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "HABANA_VISIBLE_MODULES chooses the cards",
    "CUDA_LAUNCH_BLOCKING": "PT_ENABLE_HABANA_STREAMASYNC=0 makes the host wait",
    "PYTORCH_CUDA_ALLOC_CONF": "the card's allocator does not have these settings",
}


class Rewriter(Cell):
    """Visits the syntax tree of a cell and converts it."""

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

    # Names

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Convert ``torch.cuda.*``, ``is_cuda`` and other attributes."""
        name = self.bindings.dotted(node)
        if name is not None and self.name(node, name):
            return
        if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
            self._is_cuda(node)
        elif node.attr in _PROPERTIES and calls.is_properties(self, node.value):
            self.needs_torch = True
            self.replace(node, _PROPERTIES[node.attr])
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Convert names from ``torch.cuda``, and report devices in variables from earlier cells."""
        if not isinstance(node.ctx, ast.Load):
            return
        name = self.bindings.dotted(node)
        if name is not None and name != CUDA and self.name(node, name):
            return
        value = self.bindings.variable(node.id)
        device = type(value).__name__ == "device" and getattr(value, "type", "") == "cuda"
        if device or (is_device(value) and self.devices.reaches_device(node)):
            self.note(
                node, REMARK, f"{node.id} was set to {value!r} in another cell: port that cell"
            )

    def name(self, node: ast.Attribute | ast.Name, name: str) -> bool:
        """Convert a full name, and return True if its node does not need to be visited further."""
        known = counterpart(name)
        if known is None:
            return self._other_name(node, name)
        self.remark(node, name, known)
        if known.action == "name":
            self.rename(node, known.text)
        if known.text == "torch.amp.autocast":
            self.note(node, REMARK, "autocast is not called here: call it with the device, 'hpu'")
        return True

    def _other_name(self, node: ast.Attribute | ast.Name, name: str) -> bool:
        if name == CUDA and isinstance(node, ast.Attribute):
            self.rename(node, "torch.hpu")
            return True
        if name.startswith(f"{CUDA}."):
            self.note(node, REMARK, f"{name} is unknown and was not changed")
            return True
        if name.endswith("ProfilerActivity.CUDA") and isinstance(node, ast.Attribute):
            end = self.source.end(node)
            self.edits.append(self.source.replaced(end - len("CUDA"), end, "HPU"))
            return True
        if name in ("torch.Tensor.cuda", "torch.nn.Module.cuda"):
            self.note(node, REMARK, f"{name} is not called here, so it is not ported")
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
            self.replace(node, "")  # only adds a finding
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
        """Convert strings that contain devices and backends."""
        if not isinstance(node.value, str) or isinstance(self.parent, ast.Expr | ast.JoinedStr):
            return
        if node.value in _ENVIRONMENT:
            self.note(node, REMARK, f"{node.value} has no effect: {_ENVIRONMENT[node.value]}")
        if _TENSOR_TYPE.fullmatch(node.value):
            self.note(
                node,
                REMARK,
                f"{node.value} in a string is not ported: use the arguments "
                "device and dtype instead",
            )
        if "nvidia-smi" in node.value:
            self.note(node, REMARK, "nvidia-smi does not support Gaudi: use hl-smi or %hpu")
        if _LITERAL.fullmatch(self.source.of(node)) is None:
            if ".cuda" in node.value and _is_magic(self.parent):
                self.note(node, REMARK, NOT_PORTED)
            return
        self._remark(node)
        if node in self.devices.written:
            self._inside(node, node.value, self.devices.written[node])

    def _inside(self, node: ast.Constant, value: str, mapped: str) -> None:
        """Replace the value between the quotes, or the entire literal if it has several parts."""
        place = self.source.of(node).find(value)
        if place < 0:
            self.replace(node, self.text(mapped))
            return
        start = self.source.start(node) + place
        self.edits.append(self.source.replaced(start, start + len(value), mapped))

    def visit_keyword(self, node: ast.keyword) -> None:
        """Convert Lightning's ``accelerator="gpu"``."""
        value = node.value
        if node.arg == "accelerator" and isinstance(value, ast.Constant) and value.value == "gpu":
            self.replace(value, self.text("hpu"))
        else:
            self.generic_visit(node)

    # Statements and calls

    def visit_Import(self, node: ast.Import) -> None:
        """Convert an import."""
        imports.plain(self, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Convert an import."""
        imports.of_names(self, node)

    def visit_Call(self, node: ast.Call) -> None:
        """Convert a call."""
        if not calls.convert(self, node):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Remove a call that has neither a counterpart nor an effect."""
        call = node.value
        if isinstance(call, ast.Call) and (name := self.bindings.dotted(call.func)) is not None:
            known = counterpart(name)
            if known is not None and known.action == "value":
                self.remark(node, name, known)
                self._remove(node)
                return
        self.generic_visit(node)

    def _remove(self, node: ast.Expr) -> None:
        """Remove a statement if nothing else is on its lines and its block has other statements.

        Otherwise, replace it with ``pass``.
        """
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
        known = counterpart(name) if name else None
        return known is not None and known.action == "value"

    def visit_FunctionDef(self, node: Any) -> None:
        """Add arguments to decorators that have none, and visit the definition."""
        for each in node.decorator_list:
            calls.bare_decorator(self, each)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_ClassDef = visit_FunctionDef


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant)


def _is_magic(node: ast.AST) -> bool:
    """Return whether a node is a call that IPython generated from a magic."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_line_magic"
    )
