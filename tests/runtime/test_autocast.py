"""Test the commands %%hpu_autocast and %hpu_autocast on|off, and hpu_magic.autocast."""

import threading

import pytest

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
def test_state_is_restored_after_an_error_or_interrupt(run, model, torch, ending):
    run(f"%%hpu_autocast --dtype fp16\n{ending}")
    assert not torch.is_autocast_enabled("hpu")
    assert torch.get_autocast_dtype("hpu") == torch.bfloat16


def test_on_applies_to_later_cells_until_off(run, model, torch):
    cell = run("%hpu_autocast on --dtype bf16")
    assert "simulated" in cell.out
    assert run("model(x).dtype").result == torch.bfloat16
    run("1 / 0")
    assert run("model(x).dtype").result == torch.bfloat16
    assert run("%%hpu_autocast off\nmodel(x).dtype").result == torch.float32
    run("%hpu_autocast off")
    assert run("model(x).dtype").result == torch.float32


def test_unload_ext_turns_autocast_off(run, shell, model, torch):
    run("%hpu_autocast on")
    shell.run_line_magic("unload_ext", "hpu_magic")
    try:
        assert run("model(x).dtype").result == torch.float32
    finally:
        shell.run_line_magic("load_ext", "hpu_magic")
    assert run("model(x).dtype").result == torch.float32


def test_on_outside_a_magic_is_refused_with_the_line_to_type():
    with pytest.raises(hpu_magic.HPUError, match="run %hpu_autocast on, or use with hpu_magic"):
        hpu_magic.autocast("on")


def test_autocast_is_disabled_between_cells(run, model, torch):
    run("%hpu_autocast on")
    run("y = model(x)")
    assert not torch.is_autocast_enabled("hpu")


def test_on_applies_to_nested_cells(run, model, torch, shell):
    run("%hpu_autocast on")
    run("get_ipython().run_cell('inner = model(x).dtype')\nouter = model(x).dtype")
    assert shell.user_ns["inner"] == torch.bfloat16
    assert shell.user_ns["outer"] == torch.bfloat16


def test_off_takes_effect_within_its_cell(run, model, torch):
    run("%hpu_autocast on")
    assert run("%hpu_autocast off\nmodel(x).dtype").result == torch.float32


def test_off_ends_autocast_of_a_cell_in_another_thread(run, model, torch, shell):
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


def test_option_overrides_the_configured_dtype(run, model, torch):
    run("%config HPUMagics.autocast_dtype = 'fp16'")
    try:
        assert run("%%hpu_autocast\nmodel(x).dtype").result == torch.float16
        assert run("%%hpu_autocast --dtype bf16\nmodel(x).dtype").result == torch.bfloat16
    finally:
        run("%config HPUMagics.autocast_dtype = 'bf16'")


def test_all_lists_operations_by_their_type(run, model):
    cell = run("%%hpu_autocast --all\nloss = torch.nn.functional.mse_loss(model(x), x)")
    assert "in bfloat16" in cell.out
    assert "addmm x1" in cell.out
    assert "in float32" in cell.out
    assert "mse_loss x1" in cell.out
    assert "lower precision: the default list" in cell.out


def test_changed_lists_are_remembered_and_need_a_restart(run, rejected, model, shell):
    assert "restart the kernel" in rejected("%%hpu_autocast --lower linear,matmul\nran = True")
    assert "ran" not in shell.user_ns
    from hpu_magic.runtime.start import restart

    remembered = restart.recall()
    with open(remembered["PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"]) as written:
        assert written.read().split() == ["linear", "matmul"]
    run("%%hpu_autocast --lower default --fp32 default\npass")
    restart.remember(dict.fromkeys(remembered))


def test_lists_that_are_already_loaded_need_no_restart(run, model, torch):
    lists = ",".join(sorted(operators.LOWER))
    assert run(f"%%hpu_autocast --lower {lists}\nmodel(x).dtype").result == torch.bfloat16
    assert run("%%hpu_autocast --level O1\nmodel(x).dtype").result == torch.bfloat16


def test_list_may_be_a_file_with_one_name_per_line(run, model, tmp_path):
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
        ("--lower linaer,matmul", "Unknown operator 'linaer': did you mean 'linear'"),
        ("--level O3", "needs O1 or O2 after --level, not 'O3'"),
        ("--dtype fp8", "needs bf16 or fp16 after --dtype, not 'fp8'"),
        ("--lower linear --fp32 linear", "linear cannot be in both lists"),
        ("--lower ,", "The operator list is empty"),
        ("--verbose", "type %%hpu_autocast --all"),
        ("--dtype 'bf16", "quotation mark"),
    ],
)
def test_wrong_options_are_rejected_with_one_sentence(rejected, model, shell, line, sentence):
    assert sentence in rejected(f"%%hpu_autocast {line}\nran = True")
    assert "ran" not in shell.user_ns


def test_level_o2_keeps_only_matrix_operators_in_lower_precision():
    lists = operators.requested(level="O2")
    assert {"linear", "conv2d", "bmm"} <= lists.lower
    assert {"softmax", "layer_norm", "add"} <= lists.fp32
    assert not lists.lower & lists.fp32


def test_context_manager_applies_to_its_block(model, torch, shell):
    x = shell.user_ns["x"]
    with hpu_magic.autocast(dtype="fp16"):
        assert model(x).dtype == torch.float16
        with hpu_magic.autocast("off"):
            assert model(x).dtype == torch.float32
    assert model(x).dtype == torch.float32


@pytest.mark.parametrize("dtype", ["fp32", "int8", "nonsense"])
def test_context_manager_rejects_other_types(shell, dtype):
    with pytest.raises(ValueError, match="bf16"):
        hpu_magic.autocast(dtype=dtype)


def test_lists_set_before_torch_is_imported_need_no_restart(notebook):
    cells = [
        "%load_ext hpu_magic",
        "%%hpu_autocast --lower mm,addmm,linear\n"
        "import torch; x = torch.ones(2, 2, device='hpu')\n"
        "print(torch.mm(x, x).dtype, torch.bmm(x[None], x[None]).dtype)",
        "%hpu_autocast",
    ]
    out = notebook(*cells)
    assert "torch.bfloat16 torch.float32" in out
    assert "lower precision: addmm linear mm" in out
