"""Porting a piece of CUDA code: text in, text and a report out."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpu_magic.errors import RefusedError
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
    """Write CUDA code as code for the card; comments and layout stay as they are.

    Parameters
    ----------
    code : str
        Python code that was written for CUDA.
    mark_steps : bool, optional
        Mark a step behind each backward pass and each optimizer's step, as lazy mode wants it;
        by default as the mode of this process, or the one that was asked for.
    variables : mapping, optional
        What names mean that the code does not import, such as the notebook's variables.
    parsed : str, optional
        The same code in the same lines without IPython's syntax.
    first_line : int
        Number of the code's first line, for the report.

    Returns
    -------
    PortReport
        The ported code is its ``ported``; what has no counterpart is in its ``findings``.

    Raises
    ------
    RefusedError
        The code is no Python.
    """
    code = code if code.endswith("\n") or not code else f"{code}\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code, which it gets when it runs
            tree = ast.parse(code if parsed is None else parsed)
    except SyntaxError as error:
        line = (error.lineno or 1) + first_line - 1
        raise RefusedError(
            f"Line {line} is no Python ({error.msg}): mend it first, then port it."
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
    """Return what comes before all lines, and the edits that add imports and step marks."""
    bindings = rewriter.bindings
    edits = []
    marked = [each for each in steps(tree, bindings) if mark_steps and rewriter.typed(each)]
    for statement in marked:
        edits += source.behind(statement, MARK)
    imports = []
    if rewriter.needs_torch and not bindings.knows("torch"):
        imports.append("import torch")
    behind = torch_import(tree)
    if (marked or behind is not None) and not bindings.knows("htcore"):
        imports.append(IMPORT)
    place = behind if behind is not None else preamble(tree)
    if place is None:
        return imports, edits
    if imports:
        edits += source.behind(place, "; ".join(imports))
    return [], edits
