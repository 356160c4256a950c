"""%%hpu_autocast, %hpu_autocast on|off and hpu_magic.autocast."""

from __future__ import annotations

import threading

import pytest
from IPython.core.error import UsageError

import hpu_magic
from hpu_magic.runtime.precision import operators


@pytest.fixture
def model(shell, torch):
    """A linear model and its input on the device, in the user's namespace."""
    shell.user_ns["torch"] = torch
    shell.user_ns["model"] = torch.nn.Linear(4, 4).to("hpu")
    shell.user_ns["x"] = torch.ones(2, 4, device="hpu")
    return shell.user_ns["model"]


@pytest.mark.parametrize(
    ("options", "dtype"),
    [("", "bfloat16"), ("--dtype bf16", "bfloat16"), ("--dtype fp16", "float16")],
)
def test_cell_computes_in_the_lower_precision(run, model, torch, options, dtype):
    assert run(f"%%hpu_autocast {options}\nmodel(x).dtype").result == getattr(torch, dtype)
    assert run("model(x).dtype").result == torch.float32


def test_training_under_autocast_keeps_fp32_gradients(run, model, torch):
    run("%%hpu_autocast\nloss = model(x).sum()\nloss.backward()")
    assert model.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("ending", ["1 / 0", "raise KeyboardInterrupt"])
def test_state_is_restored_when_the_cell_ends_badly(run, model, torch, ending):
    run(f"%%hpu_autocast --dtype fp16\n{ending}")
    assert not torch.is_autocast_enabled("hpu")
    assert torch.get_autocast_dtype("hpu") == torch.bfloat16


def test_on_holds_for_all_later_cells_until_off(run, model, torch):
    cell = run("%hpu_autocast on --dtype bf16")
    assert "simulated" in cell.out
    assert run("model(x).dtype").result == torch.bfloat16
    run("1 / 0")
    assert run("model(x).dtype").result == torch.bfloat16
    assert run("%%hpu_autocast off\nmodel(x).dtype").result == torch.float32
    run("%hpu_autocast off")
    assert run("model(x).dtype").result == torch.float32


def test_on_leaves_the_process_as_it_was_between_cells(run, model, torch):
    run("%hpu_autocast on")
    run("y = model(x)")
    assert not torch.is_autocast_enabled("hpu")


def test_on_reaches_cells_that_a_cell_runs(run, model, torch, shell):
    run("%hpu_autocast on")
    run("get_ipython().run_cell('inner = model(x).dtype')\nouter = model(x).dtype")
    assert shell.user_ns["inner"] == torch.bfloat16
    assert shell.user_ns["outer"] == torch.bfloat16


def test_off_takes_effect_within_its_cell(run, model, torch):
    run("%hpu_autocast on")
    assert run("%hpu_autocast off\nmodel(x).dtype").result == torch.float32


def test_off_lets_a_cell_in_another_thread_leave_autocast_at_its_end(run, model, torch, shell):
    run("%hpu_autocast on")
    started, go_on = threading.Event(), threading.Event()
    shell.user_ns.update(started=started, go_on=go_on)
    seen = []

    def subshell():
        shell.run_cell("started.set(); waited = go_on.wait(30)")
        seen.append(torch.is_autocast_enabled("hpu"))

    cell = threading.Thread(target=subshell)
    cell.start()
    assert started.wait(30)
    run("%hpu_autocast off")
    go_on.set()
    cell.join()
    assert (shell.user_ns["waited"], seen) == (True, [False])


def test_default_dtype_is_configurable_and_an_option_wins(run, model, torch):
    run("%config HPUMagics.autocast_dtype = 'fp16'")
    try:
        assert run("%%hpu_autocast\nmodel(x).dtype").result == torch.float16
        assert run("%%hpu_autocast --dtype bf16\nmodel(x).dtype").result == torch.bfloat16
    finally:
        run("%config HPUMagics.autocast_dtype = 'bf16'")


def test_verbose_tells_what_ran_in_which_type(run, model):
    cell = run("%%hpu_autocast --all\nloss = torch.nn.functional.mse_loss(model(x), x)")
    assert "in bfloat16" in cell.out
    assert "addmm x1" in cell.out
    assert "in float32" in cell.out
    assert "mse_loss x1" in cell.out
    assert "lower precision: the default list" in cell.out


def test_unknown_operator_is_refused_with_close_names(run, model):
    cell = run("%%hpu_autocast --lower linaer,matmul\nmodel(x)")
    assert isinstance(cell.error, UsageError)
    assert "There is no operator 'linaer': did you mean 'linear'" in cell.err


def test_other_lists_are_remembered_and_the_cell_waits_for_the_restart(run, model, shell):
    cell = run("%%hpu_autocast --lower linear,matmul\nran = True")
    assert isinstance(cell.error, UsageError)
    assert "restart the kernel" in cell.err
    assert "ran" not in shell.user_ns
    from hpu_magic.runtime.start import restart

    remembered = restart.recall()
    with open(remembered["PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"]) as written:
        assert written.read().split() == ["linear", "matmul"]
    run("%%hpu_autocast --lower default --fp32 default\npass")
    restart.remember(dict.fromkeys(remembered))


def test_the_loaded_lists_may_be_asked_for(run, model, torch):
    lists = ",".join(sorted(operators.LOWER))
    assert run(f"%%hpu_autocast --lower {lists}\nmodel(x).dtype").result == torch.bfloat16
    assert run("%%hpu_autocast --level O1\nmodel(x).dtype").result == torch.bfloat16


def test_list_may_be_a_file_with_one_name_a_line(run, model, tmp_path):
    file = tmp_path / "ops.txt"
    file.write_text("\n".join(sorted(operators.LOWER)) + "\n")
    assert run(f"%%hpu_autocast --lower {file}\n6 * 7").result == 42
    file.write_text("linear\nno_such_operator\n")
    assert "no_such_operator" in run(f"%%hpu_autocast --lower {file}\n1").err
    assert "cannot be read" in run(f"%%hpu_autocast --lower {file}.missing\n1").err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--level O2 --lower linear", "Level O2 has its own lists"),
        ("--level O3", "needs O1 or O2 after --level, not 'O3'"),
        ("--dtype fp8", "needs bf16 or fp16 after --dtype, not 'fp8'"),
        ("--lower linear --fp32 linear", "linear cannot be in both lists"),
        ("--lower ,", "The operator list is empty"),
        ("--verbose", "type %%hpu_autocast --all"),
        ("--dtype 'bf16", "quotation mark"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(run, model, shell, line, sentence):
    cell = run(f"%%hpu_autocast {line}\nran = True")
    assert isinstance(cell.error, UsageError)
    assert sentence in cell.err
    assert "ran" not in shell.user_ns


def test_level_o2_keeps_only_matrix_work_in_lower_precision():
    lists = operators.requested(level="O2")
    assert {"linear", "conv2d", "bmm"} <= lists.lower
    assert {"softmax", "layer_norm", "add"} <= lists.fp32
    assert not lists.lower & lists.fp32


def test_plain_context_manager(model, torch, shell):
    x = shell.user_ns["x"]
    with hpu_magic.autocast(dtype="fp16"):
        assert model(x).dtype == torch.float16
        with hpu_magic.autocast("off"):
            assert model(x).dtype == torch.float32
    assert model(x).dtype == torch.float32


@pytest.mark.parametrize("dtype", ["fp32", "int8", "nonsense"])
def test_plain_context_manager_refuses_other_types(shell, dtype):
    with pytest.raises(ValueError, match="bf16"):
        hpu_magic.autocast(dtype=dtype)


def test_lists_given_before_torch_is_imported_are_in_force_at_once(script, tmp_path):
    cells = [
        "%load_ext hpu_magic",
        "%%hpu_autocast --lower mm,addmm,linear\n"
        "import torch; x = torch.ones(2, 2, device='hpu')\n"
        "print(torch.mm(x, x).dtype, torch.bmm(x[None], x[None]).dtype)",
        "%hpu_autocast",
    ]
    out = script(
        f"""
        from IPython.core.interactiveshell import InteractiveShell
        for source in {cells!r}:
            InteractiveShell.instance().run_cell(source, store_history=True)
        """,
        JPY_SESSION_NAME=str(tmp_path / "lists.ipynb"),
    )
    assert "torch.bfloat16 torch.float32" in out
    assert "lower precision: addmm linear mm" in out
