"""Test servers that do not start, and servers that end: no process is left and no card is held."""

import json
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
from test_serving import HOLDERS


def test_failed_start_names_the_first_error_and_leaves_nothing(shell):
    out = shell(
        "%hpu_serve tiny --port 0 --fail",
        HOLDERS,
        "%hpu_serve tiny --hang --timeout 4",
        "%hpu_serve tiny --silent",
        HOLDERS,
    )
    assert "'tiny' ended with exit code 3 before it was ready: ValueError: the model has" in out
    assert "'tiny' ended with exit code 4 before it was ready. It printed nothing." in out
    assert out.count("[0, 0]") == 2
    assert "The server of 'tiny' is not ready after 4 s: pass a larger --timeout" in out


def test_missing_card_is_reported(shell):
    out = shell(
        "import torch; held = torch.ones(1, device='hpu')",
        "%hpu_serve tiny --cards 2 --port 0",
        "%hpu_serve tiny --cards 0",
        "%hpu_serve tiny --timeout 0",
        # Another program acquires the card after it was selected.
        """
        from hpu_magic.serving.checks import free_port
        from hpu_magic.serving.server import ModelServer
        ModelServer("tiny", [], free_port(0), [0]).wait_until_ready(60, lambda line: None)
        """,
        HOLDERS,
    )
    assert "The card that this process may use is held (HPU 0 by process" in out
    assert "[1, 0]" in out
    assert "2 servers need 2 cards, but only 1 of 2 are free: HPU 0 is held by" in out
    assert "--cards must be at least 1, got 0." in out
    assert "--timeout must be positive, got 0." in out


def test_missing_vllm_is_reported():
    import hpu_magic
    from hpu_magic.errors import HPUError

    if not shutil.which("vllm"):
        with pytest.raises(HPUError, match="needs vLLM with its Gaudi plugin, but vllm is not"):
            hpu_magic.serve("tiny")
    assert repr(hpu_magic.serve()).startswith("No server is running.")
    assert hpu_magic.serve("off").model is None


def test_wrong_pair_of_versions_names_the_right_one(shell, environment):
    installed = {"neural_compressor_pt": "3.10", "vllm": "0.25.0+empty", "vllm_gaudi": "0.26.0"}
    for name, version in installed.items():
        folder = Path(environment["PYTHONPATH"]) / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    out = shell("%hpu_serve tiny --port 0")
    assert "vllm-gaudi 0.26.0 requires vLLM 0.26.0, but vLLM 0.25.0 is installed: install " in out
    (folder / "METADATA").write_text("Name: vllm_gaudi\nVersion: 0.26.1.dev3\n")
    assert "tiny is ready" in shell("%hpu_serve tiny --port 0")


def test_model_larger_than_the_host_is_refused(tmp_path):
    import hpu_magic.serving.checks as checks
    from hpu_magic.errors import HPUError

    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(4 << 40)
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}')
    with pytest.raises(HPUError, match=r"require 2\.00 TiB, but this machine has only .* of free"):
        checks.check_host_memory(str(tmp_path))
    checks.check_host_memory("not-downloaded/model")


def test_model_with_dummy_weights_larger_than_the_host_is_refused(tmp_path):
    import hpu_magic.serving.checks as checks
    from hpu_magic.errors import HPUError

    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 1}
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 1 << 42}))
    checks.check_host_memory(str(tmp_path), ["--served-model-name", "dummy"])
    with pytest.raises(HPUError, match=r"require 64\.0 TiB, but this machine has only .* of free"):
        checks.check_host_memory(str(tmp_path), ["--load-format", "dummy"])
    (tmp_path / "config.json").write_text('{"model_type": "unknown"}')
    checks.check_host_memory(str(tmp_path), ["--load-format=dummy"])


def test_port_in_use_is_reported():
    from hpu_magic.errors import HPUError
    from hpu_magic.serving.checks import free_port

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HPUError, match=f"Port {port} cannot be used"):
            free_port(port)
    assert free_port(port) == port
    with pytest.raises(HPUError, match="between 0 and 65535, got 70000"):
        free_port(70_000)


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


KILL = """
import os, signal, time
from hpu_magic.serving import session
os.kill(session.current().server.pid, signal.SIGKILL)
while session.current():
    time.sleep(0.01)
"""


def test_children_of_a_killed_server_end(shell):
    out = shell(
        "%hpu_serve tiny --port 0 --survive",
        HOLDERS,
        KILL,
        "%hpu_serve",
        HOLDERS,
        "%hpu_serve tiny --port 0",
        KILL,
        "%hpu_serve tiny --port 0",
    )
    assert "[1, 0]" in out
    assert "The server of 'tiny' was killed by SIGKILL (Linux kills processes if the host's" in out
    assert "exhausted). Its last line was: (EngineCore pid=1) INFO" in out
    assert "[0, 0]" in out
    assert out.count("tiny is ready") == 3


def test_children_end_with_a_killed_server_and_notebook(shell):
    process, _ = shell("%hpu_serve tiny --port 0 --survive", end=False)
    below = descendants(process)
    assert any("--survive" in each.cmdline() for each in below)
    for each in below:
        if "vllm.entrypoints.cli.main" in each.cmdline():
            each.kill()
    process.kill()
    assert_all_end(below)


def test_interrupt_during_the_start_stops_the_server(environment):
    code = f"""
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    for cell in ("%load_ext hpu_magic", "%hpu_serve tiny --hang --port 0", {HOLDERS!r}):
        shell.run_cell(cell)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 60
    while len(descendants(process)) < 3 and time.monotonic() < until:  # server, guard and engine
        time.sleep(0.1)
    below = descendants(process)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert "UsageError: %hpu_serve was interrupted; the server has been stopped." in out
    assert "[0, 0]" in out
    assert_all_end(below)
