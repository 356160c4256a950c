"""The entry point for porting CUDA code."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.execution.mode import loaded_mode, requested_mode
from hpu_magic.runtime.porting.report import PortReport
from hpu_magic.runtime.porting.rewrite import Rewriter
from hpu_magic.runtime.porting.source import Edit, Source, applied
from hpu_magic.runtime.porting.steps import IMPORT, MARK, preamble, steps, torch_import


def port(
    code: str,
    *,
    mark_steps: bool | None = None,
    variables: Mapping[str, Any] | None = None,
    parsed: str | None = None,
    first_line: int = 1,
) -> PortReport:
    """Convert CUDA code to code for the card, keeping comments and layout.

    If ``mark_steps`` is true, ``mark_step()`` is added after each backward pass and each optimizer
    step; by default, this is done if lazy mode is loaded or requested. ``variables`` contains the
    values of names that the code does not import, such as the notebook's variables. ``parsed`` is
    the code without IPython's syntax, with the same lines. ``first_line`` is the number
    of the code's first line in the report. Raises `HPUError` if the code is not valid Python.
    """
    code = code if code.endswith("\n") or not code else f"{code}\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warnings appear again when the code runs
            tree = ast.parse(code if parsed is None else parsed)
    except SyntaxError as error:
        line = (error.lineno or 1) + first_line - 1
        raise HPUError(
            f"Line {line} is not valid Python ({error.msg}): correct it, then port the code again."
        ) from error
    source = Source(code)
    rewriter = Rewriter(source, tree, variables or {})
    rewriter.visit(tree)
    if mark_steps is None:
        mark_steps = (loaded_mode() or requested_mode()) == "lazy"
    first, edits = _added(source, tree, rewriter, mark_steps)
    shown, executed, origins = applied(code, [*rewriter.edits, *edits])
    findings = sorted(rewriter.findings, key=lambda finding: finding.line)
    shown_first = "".join(f"{line}\n" for line in first)
    return PortReport(
        code,
        shown_first + shown,
        "; ".join(first),
        executed,
        tuple(replace(each, line=each.line + first_line - 1) for each in findings),
        (*[None] * len(first), *origins),
        first_line,
    )


def _added(
    source: Source, tree: ast.Module, rewriter: Rewriter, mark_steps: bool
) -> tuple[list[str], list[Edit]]:
    """Return the lines to put before the code, and edits that add imports and step marks."""
    bindings = rewriter.bindings
    edits = []
    marked = [each for each in steps(tree, bindings) if mark_steps and rewriter.typed(each)]
    for statement in marked:
        edits += source.after(statement, MARK)
    imports = []
    if rewriter.needs_torch and not bindings.knows("torch"):
        imports.append("import torch")
    torch_imported = torch_import(tree)
    if (marked or torch_imported is not None) and not bindings.knows("htcore"):
        imports.append(IMPORT)
    place = torch_imported if torch_imported is not None else preamble(tree)
    if place is None:
        return imports, edits
    if imports:
        edits += source.after(place, "; ".join(imports))
    return [], edits
