"""Turning the simulator on: when it loads, when it is too late, and what it never does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_environment_variable_loads_it_with_torch_and_says_so(script):
    out = script(
        """
        import torch
        print(torch.hpu.is_available(), torch.hpu.device_count(), torch.hpu.is_initialized())
        print(torch.accelerator.current_accelerator())
        """,
        simulated=True,
    )
    assert out.split() == ["True", "8", "False", "hpu"]


@pytest.mark.parametrize("first", ["core as htcore", "gpu_migration"])
def test_the_bridge_may_be_imported_before_torch(script, first):
    """As on a card. The installed package brings the file that Python reads at its start."""
    tools = Path(__file__).parents[2] / "tools"
    code = f"""
        import site
        site.addsitedir({str(tools)!r})
        import habana_frameworks.torch.{first}
        import torch
        print(torch.ones(2, device="hpu").sum().item(), torch.hpu.device_count())
    """
    assert script(code, simulated=True).split() == ["2.0", "8"]
    with pytest.raises(AssertionError, match="No module named 'habana_frameworks'"):
        script(code)


def test_without_being_asked_nothing_happens(script):
    assert script("import torch; print(hasattr(torch, 'hpu'))").strip() == "False"


def test_work_on_the_cpu_before_and_after_changes_nothing(forked_script):
    code = """
        import torch
        def work(device):
            torch.manual_seed(0)
            x = torch.randn(8, 8, device=device, requires_grad=True)
            (x @ x).sin().sum().backward()
            return x.grad.sum().item()
        print({order})
    """
    alone = forked_script(code.format(order="work('cpu')"))
    mixed = forked_script(
        code.format(order="[work('cpu'), work('hpu'), work('cpu')]"), simulated=True
    )
    assert len(set(eval(mixed))) == 1
    assert eval(mixed)[0] == eval(alone)


@pytest.mark.parametrize("first", ["import torch", "pass"])
def test_activate_from_code_before_or_after_torch(script, first):
    assert "hpu:0" in script(
        f"""
        {first}
        import hpu_magic.simulator
        hpu_magic.simulator.activate()
        import torch
        x = torch.ones(2, device="hpu", requires_grad=True)
        x.sum().backward()
        print(x.grad.device)
        """
    )


def test_too_late_is_one_sentence_and_loses_nothing(script):
    out = script(
        """
        import torch
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        import hpu_magic.simulator as simulator
        for _ in range(2):
            try:
                simulator.activate()
            except simulator.TooLateError as late:
                print(late)
        (x * x).sum().backward()
        print(x.grad)
        """
    )
    assert out.count("restart") == 2
    assert "tensor([4., 4.])" in out


def test_a_real_package_is_never_replaced(script, tmp_path):
    bridge = tmp_path / "habana_frameworks" / "torch"
    bridge.mkdir(parents=True)
    (bridge / "__init__.py").write_text("origin = 'vendor'\n")
    out = script(
        """
        import hpu_magic.simulator
        try:
            hpu_magic.simulator.activate()
        except RuntimeError as refused:
            print(refused)
        import torch, habana_frameworks.torch
        print(habana_frameworks.torch.origin, hasattr(torch, "hpu"))
        """,
        simulated=True,
        PYTHONPATH=str(tmp_path),
    )
    assert "never replaces it" in out
    assert out.split()[-2:] == ["vendor", "False"]


def test_autoload_switched_off_still_loads_at_the_first_use_of_the_bridge(script):
    out = script(
        """
        import torch
        import hpu_magic.simulator.finder as finder
        finder.install_finder()
        print(torch.ones(2, device="hpu").device)
        """,
        simulated=True,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out.strip() == "hpu:0"


def run_module(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hpu_magic.simulator", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_scripts_run_under_it_with_their_arguments(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(1, device='hpu').device)\n"
    )
    done = run_module(str(program), "--epochs", "2")
    assert done.stdout.strip() == "__main__ ['--epochs', '2'] hpu:0"
    assert "SIMULATED" in done.stderr


def test_a_missing_script_or_a_wrong_setting_is_one_sentence(tmp_path):
    missing = run_module("nothing.py")
    assert missing.returncode == 2
    assert "file 'nothing.py' does not exist" in missing.stderr
    program = tmp_path / "empty.py"
    program.write_text("")
    wrong = run_module(str(program), HPU_MAGIC_CARDS="9")
    assert wrong.returncode == 2
    assert "HPU_MAGIC_CARDS='9'" in wrong.stderr
    assert "Traceback" not in missing.stderr + wrong.stderr


def test_the_card_is_acquired_by_the_first_tensor(forked_script):
    out = forked_script(
        """
        import torch
        from hpu_magic.simulator import cards
        torch.hpu.device_count(), torch.hpu.is_available(), torch.Generator("hpu")
        print(cards.acquired())
        torch.empty(0, device="hpu")
        print(cards.acquired().generation)
        """,
        simulated=True,
    )
    assert out.split() == ["None", "GAUDI2"]


def test_forked_children_may_not_use_the_card(forked_script):
    out = forked_script(
        """
        import os, torch
        before = torch.ones(4, device="hpu")
        pid = os.fork()
        if not pid:
            try:
                torch.ones(4, device="hpu")
            except RuntimeError as refused:
                print(refused, flush=True)
            del before
            os._exit(0)
        os.waitpid(pid, 0)
        print(torch.hpu.memory_allocated())
        """,
        simulated=True,
    )
    assert "Cannot re-initialize HPU in forked subprocess" in out
    assert out.split()[-1] == "16"


def test_a_busy_machine_names_the_holder(forked_script, tmp_path):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import torch, time; torch.ones(1, device='hpu'); print('ok', "
            "flush=True); time.sleep(60)",
        ],
        env={
            **os.environ,
            "HPU_MAGIC_SIMULATOR": "1",
            "HPU_MAGIC_CARDS": "1",
            "HPU_MAGIC_CARDS_DIR": str(tmp_path),
        },
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"ok\n"
        out = forked_script(
            """
            import torch
            try:
                torch.ones(1, device="hpu")
            except RuntimeError as busy:
                print(busy)
            """,
            simulated=True,
            HPU_MAGIC_CARDS="1",
            HPU_MAGIC_CARDS_DIR=str(tmp_path),
        )
        assert out.startswith("synStatus=8 [Device not found] Device acquire failed.")
        assert str(holder.pid) in out
    finally:
        holder.kill()
        holder.wait()
    again = "import torch; print(torch.ones(1, device='hpu').device)"
    assert (
        forked_script(
            again, simulated=True, HPU_MAGIC_CARDS="1", HPU_MAGIC_CARDS_DIR=str(tmp_path)
        ).strip()
        == "hpu:0"
    )


def test_a_gpu_that_pytorch_uses_is_named_with_what_to_do(torch, monkeypatch):
    from types import SimpleNamespace

    from habana_frameworks.torch import _bridge

    from hpu_magic import simulator

    assert _bridge.engine.load().remove_cuda_accelerator()  # there is none
    beside_a_gpu = SimpleNamespace(remove_cuda_accelerator=lambda: False)
    monkeypatch.setattr(_bridge, "_loaded", False)
    monkeypatch.setattr(_bridge.engine, "load", lambda: beside_a_gpu)
    with pytest.raises(simulator.GpuPresent, match="hide the GPU with CUDA_VISIBLE_DEVICES="):
        _bridge.load()


def test_small_cards_are_told_in_mebibytes(forked_script):
    say = "from hpu_magic.simulator import announcement; print(announcement())"
    assert "GAUDI2, 64 MiB each" in forked_script(say, HPU_MAGIC_MEMORY="64MiB")
    assert "GAUDI2, 96 GiB each" in forked_script(say)
