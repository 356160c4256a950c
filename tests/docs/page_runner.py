"""Runs the code of a page in order in one InteractiveShell; tests run this source in a fork."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any


def run(folder: str, blocks: list[tuple[str, str]]) -> None:
    """Run blocks, pairs of language and code, in `folder`.

    Writes ``[output, error]`` for each block to ``answers.json``; the error is the name of the
    exception or an empty string.
    """
    os.chdir(folder)
    shell = _shell()
    answers: list[tuple[str, str]] = []
    for language, code in blocks:
        answers.append(_run_commands(code) if language in ("sh", "console") else _cell(shell, code))
        Path(folder, "answers.json").write_text(json.dumps(answers))


def _shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
    shell = InteractiveShell.instance(config=settings)
    shell.run_line_magic("colors", "nocolor")
    shell.displayhook.write_output_prompt = lambda: None
    shell._showtraceback = lambda kind, error, lines: print(f"{kind.__name__}: {error}")
    return shell


def _cell(shell: Any, code: str) -> tuple[str, str]:
    from IPython.utils.capture import capture_output

    # Call the tests of a page that need no fixtures.
    calls = "".join(f"{name}()\n" for name in re.findall(r"^def (test_\w+)\(\):", code, re.M))
    with capture_output(display=False) as captured:
        done = shell.run_cell(f"{code}{calls}", store_history=True)
    error = done.error_before_exec or done.error_in_exec
    if error is None:
        return captured.stdout, ""
    # Usage errors and explanations of errors are on stderr.
    return captured.stdout + captured.stderr, type(error).__name__


def _run_commands(code: str) -> tuple[str, str]:
    command = ["sh", "-e", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return (done.stdout, "") if done.returncode == 0 else (done.stderr, "exit status")
