"""Test activation of the simulator, and the errors for wrong or late activation."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from started_process import started


def test_environment_variable_loads_the_simulator_with_torch(script):
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
def test_bridge_can_be_imported_before_torch(script, first):
    """The installed package contains a file that Python reads when it starts."""
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


def test_simulator_is_off_by_default(script):
    assert script("import torch; print(hasattr(torch, 'hpu'))").strip() == "False"


def test_device_does_not_change_cpu_results(forked_script):
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
def test_activate_works_before_and_after_the_import_of_torch(script, first):
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


def test_late_activation_fails_and_loses_nothing(script):
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


def test_installed_vendor_package_is_never_replaced(script, tmp_path):
    bridge = tmp_path / "habana_frameworks" / "torch"
    bridge.mkdir(parents=True)
    (bridge / "__init__.py").write_text("origin = 'vendor'\n")
    out = script(
        """
        import hpu_magic.simulator
        try:
            hpu_magic.simulator.activate()
        except RuntimeError as refusal:
            print(refusal)
        import torch, habana_frameworks.torch
        print(habana_frameworks.torch.origin, hasattr(torch, "hpu"))
        """,
        simulated=True,
        PYTHONPATH=str(tmp_path),
    )
    assert "never replaces it" in out
    assert out.split()[-2:] == ["vendor", "False"]


def test_device_loads_on_first_use_without_autoload(script):
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


def test_module_runs_a_script_with_its_arguments(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(1, device='hpu').device)\n"
    )
    done = run_module(str(program), "--epochs", "2")
    assert done.stdout.strip() == "__main__ ['--epochs', '2'] hpu:0"
    assert "SIMULATED" in done.stderr


def test_missing_script_and_invalid_setting_are_reported_in_one_sentence(tmp_path):
    missing = run_module("nothing.py")
    assert missing.returncode == 2
    assert "file 'nothing.py' does not exist" in missing.stderr
    program = tmp_path / "empty.py"
    program.write_text("")
    assert "Traceback" not in missing.stderr
    for variable, value in (("HPU_MAGIC_CARDS", "9"), ("HPU_MAGIC_CARD_TIME", "yes")):
        wrong = run_module(str(program), **{variable: value})
        assert wrong.returncode == 2
        assert f"{variable}={value!r}" in wrong.stderr
        assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HPU_MAGIC_CARD", "gaudi9"), ("HPU_MAGIC_CARD_TIME", "yes")],
)
def test_invalid_variable_ends_a_script_with_one_sentence(variable, value):
    done = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env={**os.environ, "HPU_MAGIC_SIMULATOR": "1", variable: value},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"hpu_magic: {variable}={value!r} is not")
    assert done.stderr.count("\n") == 1


def test_first_tensor_acquires_the_card(forked_script, needs):
    needs("GENERATORS")
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


def test_forked_child_cannot_use_the_card(forked_script):
    out = forked_script(
        """
        import os, torch
        before = torch.ones(4, device="hpu")
        pid = os.fork()
        if not pid:
            try:
                torch.ones(4, device="hpu")
            except RuntimeError as refusal:
                print(refusal, flush=True)
            del before
            os._exit(0)
        os.waitpid(pid, 0)
        print(torch.hpu.memory_allocated())
        """,
        simulated=True,
    )
    assert "Cannot re-initialize HPU in forked subprocess" in out
    assert out.split()[-1] == "16"


def test_error_names_the_process_that_holds_the_only_card(forked_script, tmp_path, monkeypatch):
    one_card = {"SIMULATOR": "1", "CARDS": "1", "CARDS_DIR": str(tmp_path)}
    for name, value in one_card.items():
        monkeypatch.setenv(f"HPU_MAGIC_{name}", value)
    acquire = """
        import torch
        try:
            print(torch.ones(1, device="hpu").device, flush=True)
        except RuntimeError as busy:
            print(busy)
    """
    with started(textwrap.dedent(acquire) + "input()") as holder:
        out = forked_script(acquire)
    assert out.startswith("synStatus=8 [Device not found] Device acquire failed.")
    assert str(holder.pid) in out
    assert forked_script(acquire) == "hpu:0\n"


def test_visible_gpu_is_refusal_with_a_fix(torch, monkeypatch):
    from types import SimpleNamespace

    from habana_frameworks.torch import _bridge

    from hpu_magic import simulator

    assert _bridge.engine.load().remove_cuda_accelerator()  # no GPU is in use
    with_gpu = SimpleNamespace(remove_cuda_accelerator=lambda: False)
    monkeypatch.setattr(_bridge, "_loaded", False)
    monkeypatch.setattr(_bridge.engine, "load", lambda: with_gpu)
    with pytest.raises(simulator.GpuPresent, match="hide the GPU with CUDA_VISIBLE_DEVICES="):
        _bridge.load()


def test_announcement_shows_small_cards_in_mebibytes(forked_script):
    announce = "from hpu_magic.simulator import announcement; print(announcement())"
    assert "GAUDI2, 64 MiB each" in forked_script(announce, HPU_MAGIC_MEMORY="64MiB")
    assert "GAUDI2, 96 GiB each" in forked_script(announce)
