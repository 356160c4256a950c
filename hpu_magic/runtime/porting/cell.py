"""The state of a cell that is being ported: source, names, device strings, edits and findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from hpu_magic.runtime.porting.bindings import Bindings
from hpu_magic.runtime.porting.devices import Devices
from hpu_magic.runtime.porting.findings import INACTIVE, MISSING, NOT_PORTED, REMARK, LineFinding
from hpu_magic.runtime.porting.source import Edit, Source
from hpu_magic.runtime.porting.tables import Counterpart


class Cell(ast.NodeVisitor):
    """Collects the edits and findings for one cell.

    ``tree`` is the syntax tree of the cell after IPython's transformation, which does not change
    line numbers. ``variables`` are the notebook's variables.
    """

    def __init__(self, source: Source, tree: ast.Module, variables: Mapping[str, Any]) -> None:
        self.source = source
        self.bindings = Bindings(tree, variables)
        self.devices = Devices(tree, self.bindings)
        self.edits: list[Edit] = []
        self.findings: list[LineFinding] = []
        self.needs_torch = False
        self._parents: list[ast.AST] = []
        self._quote = "'" if source.text.count("'") > source.text.count('"') else '"'

    @property
    def parent(self) -> ast.AST:
        """The parent of the node being visited."""
        return self._parents[-1] if self._parents else ast.Module([], [])

    def within(self, *kinds: type[ast.AST]) -> list[Any]:
        """Return the ancestors of the current node that have these types, outermost first."""
        return [node for node in self._parents if isinstance(node, kinds)]

    def generic_visit(self, node: ast.AST) -> None:
        """Visit the children of a node."""
        self._parents.append(node)
        super().generic_visit(node)
        self._parents.pop()

    def children(self, node: ast.AST, parts: list[Any]) -> None:
        """Visit some children of a node."""
        self._parents.append(node)
        for part in parts:
            self.visit(part)
        self._parents.pop()

    def text(self, value: str) -> str:
        """Return a string literal in the cell's quotes, or in other quotes inside an f-string."""
        taken = self._quotes_taken()
        quote = self._quote if not taken else "'" if taken[-1] == '"' else '"'
        return f"{quote}{value}{quote}"

    def _quotes_taken(self) -> list[str]:
        """Return the quotes of the f-strings that contain the current node."""
        around = (self.source.of(each) for each in self.within(ast.JoinedStr))
        return [match[1] for text in around if (match := re.match(r"\w*(['\"])(?!\1\1)", text))]

    def replace(self, node: ast.expr, text: str) -> bool:
        """Replace a node with `text` if the source contains it, and return whether it does."""
        if not self.typed(node):
            self.note(node, REMARK, NOT_PORTED)
            return False
        start, end = self.source.start(node), self.source.end(node)
        self.edits.append(self.source.replaced(start, end, text, whole=True))
        return True

    def insert(self, offset: int, text: str) -> None:
        """Insert `text` at an offset."""
        self.edits.append(Edit(offset, offset, text, text))

    def rename(self, node: ast.expr, text: str) -> None:
        """Replace a name with another full name, unless the name comes from a converted import."""
        if isinstance(node, ast.Name) and node.id in self.bindings.imported:
            return
        self.needs_torch = True
        self.replace(node, text)

    def note(self, node: Any, kind: str, text: str) -> None:
        """Add a finding about a node's line unless it has already been added."""
        finding = LineFinding(node.lineno, kind, text)
        if finding not in self.findings:
            self.findings.append(finding)

    def remark(self, node: Any, name: str, known: Counterpart) -> None:
        """Add a finding with the table's explanation of a name."""
        if known.action == "name":
            if known.why:
                self.note(node, REMARK, f"{name}: {known.why.rstrip('.')}")
        elif known.action == "none":
            self.note(node, MISSING, f"{name} has no counterpart: {known.why}")
        else:
            self.note(node, INACTIVE, f"{name} has no counterpart and no effect: {known.why}")

    def typed(self, node: ast.expr | ast.stmt) -> bool:
        """Return whether the source text at a node's position contains that node.

        Returns False for nodes that come from IPython's transformation of a magic.
        """
        if len(set(self._quotes_taken())) > 1:
            return False  # before Python 3.12, an f-string cannot reuse its quotes
        text = self.source.of(node)
        try:
            if isinstance(node, ast.expr):
                parsed: ast.AST = ast.parse(f"({text}\n)", mode="eval").body
            else:
                [parsed] = ast.parse(text).body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(parsed) == ast.dump(node)
