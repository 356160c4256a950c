"""``%hpu_serve``, with a program that has vLLM's options, endpoints and metrics."""

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from hpu_magic.serving import metrics
from hpu_magic.serving.server import free_port

PROGRAM = Path(__file__).with_name("vllm_program.py")


@pytest.fixture
def environment(tmp_path):
    """Variables of a process with two cards, in which the program is installed as vLLM."""
    site = tmp_path / "site"
    folder = site / "vllm" / "entrypoints" / "cli"
    folder.mkdir(parents=True)
    for package in (site / "vllm_gaudi", site / "vllm", folder.parent, folder):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    shutil.copy(PROGRAM, folder / "main.py")
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


HOLDERS = "from hpu_magic import monitor; print([len(c.holders) for c in monitor.snapshot().cards])"
GENERATE = """
import time, urllib.request
for _ in range(3):
    urllib.request.urlopen(report.url.replace("/v1", "/generate")).read()
    time.sleep(0.1)
"""


def test_server_starts_reports_and_stops(shell):
    out = shell(
        "%hpu_serve tiny --port 0 -o report",
        HOLDERS,
        GENERATE,
        "report = %hpu_serve",
        "print(report.running, report.waiting, report.finished, report.cards, report.model)",
        "print(report.tokens_per_second > 0, report.time_to_first_token, report.cache_usage)",
        "print(report.prefix_hit_rate, report.to_dict()['model'])",
        "print(report)",
        "%hpu_serve off",
        HOLDERS,
        "%hpu_serve",
    )
    assert "tiny is ready at http://127.0.0.1:" in out
    assert "[1, 0]" in out
    assert "3 4 3 [0] tiny" in out
    assert "True 0.5 0.25" in out
    assert "0.25 tiny" in out
    assert "3 running, 4 waiting, 3 finished" in out
    assert "after 500 ms" in out
    assert "[0, 0]" in out
    assert out.count("No server is running.") == 2


def test_server_uses_several_cards_and_further_options(shell):
    out = shell(
        "report = %hpu_serve tiny --cards 2 --port 0 --tensor-parallel-size 2",
        "report = %hpu_serve tiny --cards 3 --port 0",
        "report = %hpu_serve tiny --cards 2 --port 0",
        "print(report.cards)",
        "%hpu_serve other --port 0",
        "%hpu_serve --fail tiny",
    )
    assert "--tensor-parallel-size cannot be passed to vLLM: pass --cards N." in out
    assert "3 servers need 3 cards, but there are only 2: pass --cards 2." in out
    assert "[0, 1]" in out
    assert "tiny is already being served at http://127.0.0.1:" in out
    assert "The model must come first: type %hpu_serve MODEL --fail" in out


def test_failed_start_names_the_first_error_and_leaves_nothing(shell):
    out = shell("%hpu_serve tiny --port 0 --fail", HOLDERS, "%hpu_serve tiny --hang --timeout 4")
    assert "'tiny' ended before it was ready, with exit code 3: ValueError: the model has" in out
    assert "[0, 0]" in out
    assert "The server of 'tiny' is not ready after 4 s: pass --timeout with more seconds" in out


def test_missing_card_is_reported(shell):
    out = shell(
        "import torch; held = torch.ones(1, device='hpu')",
        "%hpu_serve tiny --cards 2 --port 0",
        "%hpu_serve tiny --cards 0",
        "%hpu_serve tiny --timeout 0",
    )
    assert "2 servers need 2 cards, but only 1 of 2 are free: HPU 0 is held by" in out
    assert "--cards must be at least 1, got 0." in out
    assert "--timeout must be positive, got 0." in out


def descendants(process):
    return psutil.Process(process.pid).children(recursive=True)


def assert_all_end(processes):
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []


def test_server_ends_with_a_killed_notebook(shell):
    process, out = shell("%hpu_serve tiny --port 0", end=False)
    assert "tiny is ready" in out
    below = descendants(process)
    assert any("vllm" in " ".join(each.cmdline()) for each in below)
    process.kill()
    assert_all_end(below)


def test_interrupt_during_the_start_stops_the_server(environment):
    code = """
    import hpu_magic
    from hpu_magic import backend
    backend.activate()
    print("begin", flush=True)
    hpu_magic.serve("tiny", "--hang", port=0)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    until = time.monotonic() + 60
    while len(descendants(process)) < 3 and time.monotonic() < until:  # server, guard and engine
        time.sleep(0.1)
    below = descendants(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert_all_end(below)


def test_port_in_use_is_reported():
    from hpu_magic.errors import HPUError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HPUError, match=f"Port {port} cannot be used"):
            free_port(port)
    assert free_port(port) == port
    with pytest.raises(HPUError, match="between 0 and 65535, got 70000"):
        free_port(70_000)


def test_values_that_the_server_does_not_report_are_unknown():
    sample = metrics.parse("# TYPE vllm:num_requests_running gauge\n", 1.0)
    assert math.isnan(sample.running)
    assert math.isnan(sample.prefix_hit_rate)
    assert math.isnan(metrics.tokens_per_second(sample, sample))
    assert math.isnan(metrics.time_to_first_token(None, sample))


def test_time_to_first_token_covers_the_newest_requests():
    text = "vllm:time_to_first_token_seconds_sum {}\nvllm:time_to_first_token_seconds_count {}\n"
    first, second = metrics.parse(text.format(2.0, 2), 0), metrics.parse(text.format(3.0, 4), 1)
    assert metrics.time_to_first_token(first, second) == 0.5
    assert metrics.time_to_first_token(second, second) == 0.75
    assert metrics.time_to_first_token(None, first) == 1.0


def test_missing_vllm_is_reported():
    import hpu_magic
    from hpu_magic.errors import HPUError

    if not shutil.which("vllm"):
        with pytest.raises(HPUError, match="needs vLLM with its Gaudi plugin, but vllm is not"):
            hpu_magic.serve("tiny")
    assert repr(hpu_magic.serve()).startswith("No server is running.")
    assert hpu_magic.serve("off").model is None
