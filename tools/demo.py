"""Run the quickstart in a new kernel and print the result in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
EXECUTED = ROOT / "build" / "quickstart.ipynb"
LOWEST_ACCURACY = 0.97


def execute(notebook: Any) -> dict[str, Any]:
    """Execute the notebook, print its headings, and return its variable `summary`."""
    cell_of_summary = nbformat.v4.new_code_cell("import json; print(json.dumps(summary))")
    notebook.cells.append(cell_of_summary)
    client = NotebookClient(
        notebook,
        timeout=600,
        resources={"metadata": {"path": str(EXECUTED.parent)}},
        extra_arguments=["--log-level=ERROR"],
        coalesce_streams=True,
    )
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "markdown":
                print(cell.source.partition("\n")[0].lstrip("# "), flush=True)
            client.execute_cell(cell, number)
    notebook.cells.remove(cell_of_summary)
    [output] = cell_of_summary.outputs
    return json.loads(output.text)


def main() -> int:
    """Run the demo and return its exit code: 1 if a cell fails or the accuracy is too low."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    EXECUTED.parent.mkdir(exist_ok=True)
    started = perf_counter()
    try:
        summary = execute(notebook)
    except CellExecutionError as failure:
        print(failure, file=sys.stderr)
        return 1
    seconds = perf_counter() - started
    nbformat.write(notebook, EXECUTED)
    print(f"The executed notebook is {EXECUTED.relative_to(ROOT)}.")
    if summary["accuracy"] < LOWEST_ACCURACY:
        print(
            f"demo: accuracy {summary['accuracy']:.3f} is below {LOWEST_ACCURACY}.",
            file=sys.stderr,
        )
        return 1
    print(
        f"demo: accuracy {summary['accuracy']:.3f} on {summary['device']}, "
        f"peak memory {summary['peak'] / 2**20:.1f} MiB, {seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
