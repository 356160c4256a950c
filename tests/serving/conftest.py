"""IPython processes in which a program with vLLM's options is installed as vLLM."""

import os
import subprocess
import sys
import textwrap

import pytest
import vllm_program


@pytest.fixture
def environment(tmp_path):
    """Variables of a process with two cards, in which the program is installed as vLLM."""
    site = tmp_path / "site"
    vllm_program.install(site)
    return {
        **os.environ,
        "PYTHONPATH": str(site),
        "HPU_MAGIC_CARDS": "2",
        "HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards"),
    }


@pytest.fixture
def shell(environment):
    """Run cells in an IPython process and return its output; the process may be killed."""
    started = []

    def run(*cells, end=True):
        sources = [textwrap.dedent(cell) for cell in cells]
        code = f"""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("colors", "nocolor")
        for source in ["%load_ext hpu_magic", *{sources!r}]:
            shell.run_cell(source, store_history=True)
        print("done", flush=True)
        {"" if end else "input()"}
        """
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        if end:
            return process.communicate(timeout=120)[0]
        lines = iter(process.stdout.readline, "done\n")
        return process, "".join(lines)

    yield run
    for process in started:
        process.kill()
        process.communicate()
