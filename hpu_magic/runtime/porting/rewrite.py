"""Finds what a cell's text has of CUDA, and writes what the card has in its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from hpu_magic.runtime.porting import calls, imports
from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.findings import INACTIVE, MISSING, REMARK, Finding
from hpu_magic.runtime.porting.source import Edit, Source
from hpu_magic.runtime.porting.tables import CUDA, Counterpart, counterpart, gpu_package

_DEVICE = re.compile(r"cuda(:\d*)?")
_FORMATTED = re.compile(r"cuda:(%[ds]|\{\w*\})")
_BACKEND = re.compile(r"(cpu:gloo,)?(cuda:)?nccl")
_LITERAL = re.compile(r"[rRuU]?('''|\"\"\"|'|\").*\1", re.DOTALL)
# Where an expression with an operator may stand without parentheses.
_WITHOUT_PARENTHESES = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.Assign, ast.BoolOp, ast.Call)
_SETTINGS = ("torch.backends.cudnn.", "torch.backends.cuda.")
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
        super().visit(node)

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
        quote = self._quote
        for around in self.within(ast.JoinedStr):
            found = re.match(r"\w*(['\"])", self.source.of(around))
            quote = "'" if found and found[1] == '"' else '"'
        return f"{quote}{value}{quote}"

    def replace(self, node: ast.expr | ast.stmt, text: str) -> bool:
        """Put `text` in a node's place, if the node is in the cell as it was typed."""
        if not self.typed(node):
            self.note(node, REMARK, "it stands in a magic or a formatted text, and is not ported")
            return False
        start, end = self.source.start(node), self.source.end(node)
        whole = isinstance(node, ast.expr)
        self.edits.append(self.source.replaced(start, end, text, whole=whole))
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
        elif node.attr == "total_memory" and calls.asks_properties(self, node.value):
            self.needs_torch = True
            self.replace(node, "torch.hpu.mem_get_info()[1]")
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
        if type(value).__name__ == "device" and getattr(value, "type", "") == "cuda":
            self.note(node, REMARK, f"{node.id} is {value!r}, made by another cell: port that one")

    def name(self, node: ast.Attribute | ast.Name, name: str) -> bool:
        """Map a full name; return whether it is one that the card has otherwise, or not."""
        found = counterpart(name)
        if found is None:
            return self._other_name(node, name)
        self.remark(node, name, found)
        if found.action == "name":
            self.rename(node, found.text)
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
        dot = self.source.end(node.value)
        self.children(node, [node.value])
        compared = f".device.type == {self.text('hpu')}"
        plain = isinstance(self.parent, _WITHOUT_PARENTHESES) or (
            isinstance(self.parent, ast.UnaryOp) and isinstance(self.parent.op, ast.Not)
        )
        if not plain:
            self.insert(self.source.start(node), "(")
        self.edits.append(
            self.source.replaced(dot, self.source.end(node), compared + ")" * (not plain))
        )

    # Texts

    def visit_Constant(self, node: ast.Constant) -> None:
        """Map the names of devices and backends."""
        if not isinstance(node.value, str) or isinstance(self.parent, ast.Expr | ast.JoinedStr):
            return
        if node.value in _ENVIRONMENT:
            self.note(node, REMARK, f"{node.value} means nothing here: {_ENVIRONMENT[node.value]}")
        text = self.source.of(node)
        if _LITERAL.fullmatch(text) is None:
            return
        if _DEVICE.fullmatch(node.value):
            self.edits.append(self._inside(node, text, "hpu"))
        elif _BACKEND.fullmatch(node.value):
            mapped = node.value.replace("nccl", "hccl").replace("cuda", "hpu")
            self.edits.append(self._inside(node, text, mapped))

    def _inside(self, node: ast.Constant, text: str, value: str) -> Edit:
        place = self.source.start(node) + text.index(str(node.value))
        return self.source.replaced(place, place + len(str(node.value)), value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Map ``f"cuda:{rank}"``: whichever the number, a process has one card."""
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and first.value == "cuda:":
            self._numbered(node)
        else:
            self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Map ``"cuda:" + str(rank)`` and ``"cuda:%d" % rank``."""
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            text = node.left.value
            joined = isinstance(node.op, ast.Add) and text == "cuda:"
            if joined or (isinstance(node.op, ast.Mod) and _FORMATTED.fullmatch(text)):
                self._numbered(node)
                return
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Map Lightning's ``accelerator="gpu"``."""
        value = node.value
        if node.arg == "accelerator" and isinstance(value, ast.Constant) and value.value == "gpu":
            self.replace(value, self.text("hpu"))
        else:
            self.generic_visit(node)

    def _numbered(self, node: ast.expr) -> None:
        if self.replace(node, self.text("hpu")):
            self.note(node, REMARK, "a process has one card, hpu:0, whichever its number is")

    # Statements and calls

    def visit_Import(self, node: ast.Import) -> None:
        """Map an import."""
        imports.plain(self, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Map an import."""
        imports.of_names(self, node)

    def visit_Call(self, node: ast.Call) -> None:
        """Map a call."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            text = node.func.value
            if isinstance(text, ast.Constant) and _FORMATTED.fullmatch(str(text.value)):
                self._numbered(node)
                return
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
        else:
            self.replace(node, "pass")

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
