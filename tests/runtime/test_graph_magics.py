"""Test %%hpu_capture, %hpu_replay, %hpu_graphs and %hpu_wrap."""

import re

import pytest

from hpu_magic.runtime.start import restart


def test_eager_mode_rejects_graphs_and_names_the_command_for_lazy_mode(rejected, shell, torch):
    shell.user_ns["x"] = torch.ones(3, device="hpu")
    for source in ("%%hpu_capture step --inputs x\ny = x + 1", "%hpu_wrap model"):
        shell.user_ns["model"] = torch.nn.Linear(2, 2).to("hpu")
        message = rejected(source)
        assert "HPU Graphs need lazy mode, but eager mode was loaded" in message
        assert "type %hpu_mode lazy, then end this session and start a new one." in message
        assert "y" not in shell.user_ns
    assert restart.recall() == {}


def test_restart_option_remembers_lazy_mode(run, torch, forgetful):
    cell = run("%%hpu_capture step --restart\ny = 1")
    assert "end this session and start a new one." in cell.err
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "1"}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("%%hpu_capture 1st\npass", "'1st' cannot be a variable"),
        ("%hpu_replay missing", "Unknown graph 'missing'"),
        ("%hpu_graphs --delete missing", "Unknown graph 'missing'"),
        ("%hpu_wrap number", "Cannot wrap an object of type int"),
        ("%hpu_wrap model", "move it with %hpu_to first"),
        ("%hpu_wrap model --max-graphs 0", "--max-graphs is 0"),
    ],
)
def test_wrong_input_is_rejected_with_one_sentence(rejected, shell, torch, source, sentence):
    shell.user_ns.update(number=3, model=torch.nn.Linear(1, 1))
    if "--max-graphs" in source:
        shell.user_ns["model"].to("hpu")
    assert sentence in rejected(source)


def test_empty_list_says_how_to_capture_a_graph(run):
    assert "%%hpu_capture NAME captures a cell" in run("%hpu_graphs").out


@pytest.fixture
def step(lazy):
    """A captured cell, y = 2 x + 1."""
    lazy("x = torch.arange(6.0).reshape(2, 3).to('hpu')")
    answer = lazy("%%hpu_capture step --inputs x\nz = x * 2\ny = z + 1")
    assert not answer.error
    return answer


def test_capture_shows_operations_memory_inputs_and_outputs(lazy, step):
    assert re.search(r"Graph step captured on HPU \d \(simulated GAUDI2\)", step.text)
    assert "mul.Tensor x1" in step.text
    assert "x (2, 3)" in step.text
    assert lazy.value("y.cpu().tolist()") == [[1, 3, 5], [7, 9, 11]]


def test_outputs_are_the_tensors_of_the_graph(lazy, step):
    lazy("own = y")
    lazy("x = x + 1\n%hpu_replay step")
    assert lazy.value("own is y")
    assert lazy.value("y.cpu().tolist()") == [[3, 5, 7], [9, 11, 13]]
    lazy("y = None\n%hpu_replay step -n 3")
    assert lazy.value("y is own")


def test_replay_uses_an_input_that_was_changed_in_place(lazy, step):
    lazy("x.fill_(4.0)\nreport = %hpu_replay step")
    assert lazy.value("y.cpu().tolist()") == [[9] * 3] * 2
    assert lazy.value("report.copied") == []


def test_replays_are_counted_and_do_not_allocate_memory(lazy, step):
    lazy("%hpu_replay step\nbefore = torch.hpu.memory_allocated()")
    answer = lazy("report = %hpu_replay step -n 100\nreport")
    assert "replayed 100 times" in answer.text
    assert lazy.value("[report.grown, torch.hpu.memory_allocated() - before]") == [0, 0]
    listed = lazy("%hpu_graphs")
    assert "101" in listed.text
    assert "step" in listed.text


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        ("torch.ones(4, 3, device='hpu')", "has shape (4, 3), but was captured with shape (2, 3)"),
        ("torch.ones(2, 3, device='hpu').int()", "captured with dtype torch.float32"),
        ("torch.ones(2, 3)", "has device cpu, but was captured with device hpu:0"),
        ("7", "'x' of graph step is now a int"),
    ],
)
def test_incompatible_input_is_rejected_before_a_replay(lazy, step, new, sentence):
    lazy(f"kept = y.clone()\nx = {new}")
    answer = lazy("%hpu_replay step")
    assert "UsageError" in answer.text
    assert sentence in answer.text
    assert lazy.value("torch.equal(kept, y)")


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        (
            "z = x * 2\nvalue = z.sum().item()",
            (
                "line 3",
                "z.sum().item()",
                "_local_scalar_dense",
                "read the graph's outputs after the capture",
            ),
        ),
        ("z = x * 2\n\nkept = z[z > 1]", ("line 4", "kept = z[z > 1]", "torch.where")),
        ("top = biggest(x)", ("top = biggest(x)", "return value.max().item()")),
    ],
    ids=["host read", "data-dependent shape", "host read in a function"],
)
def test_rejected_operation_is_reported_with_line_and_fix(lazy, step, cell, texts):
    lazy("def biggest(value):\n    return value.max().item()")
    answer = lazy(f"%%hpu_capture bad --inputs x --warmup 0\n{cell}")
    assert "RuntimeError" in answer.error
    assert "site-packages" not in answer.error
    assert [text for text in texts if text not in answer.text] == []
    assert "bad" not in lazy("%hpu_graphs").text


def test_mask_that_transformers_reads_is_reported_with_a_fix(lazy):
    # transformers' models import torchao, which may require a newer torch.
    pytest.importorskip("transformers.models.llama.modeling_llama", exc_type=ImportError)
    lazy(
        "import torch\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        "sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=1)\n"
        "model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **sizes)).eval().to('hpu')\n"
        "ids = torch.ones(1, 8, dtype=torch.int64).to('hpu')\nmask = torch.ones_like(ids)\n"
        "torch.set_grad_enabled(False)"
    )
    cell = "%%hpu_capture text --inputs ids\nlogits = model(ids, {}, use_cache=False).logits"
    assert "model.set_attn_implementation('eager')" in lazy(cell.format("None")).text
    lazy("model.set_attn_implementation('eager')")
    assert "Graph text captured" in lazy(cell.format("mask")).text
    lazy("torch.set_grad_enabled(True)")


def test_rejected_collective_is_reported_with_the_variable_to_set(lazy, step, tmp_path):
    lazy(
        "import torch.distributed as dist\n"
        f"store = dist.FileStore('{tmp_path}/store', 1)\n"
        "dist.init_process_group('hccl', store=store, rank=0, world_size=1)"
    )
    answer = lazy("%%hpu_capture bad --inputs x --warmup 0\nz = x * 2\ndist.all_reduce(z)")
    assert "dist.all_reduce(z)" in answer.text
    assert "Fix: collectives can be captured if PT_HPU_ENABLE_LAZY_COLLECTIVES=true" in answer.text
    lazy("dist.destroy_process_group()")


def test_rejected_capture_keeps_the_device_usable_and_the_previous_graph(lazy, step):
    lazy("%%hpu_capture step --inputs x --warmup 0\nvalue = x.sum().item()")
    assert lazy.value("(x * 2).sum().item()") == 30
    lazy("x = x + 1\n%hpu_replay step")
    assert lazy.value("y.cpu().tolist()") == [[3, 5, 7], [9, 11, 13]]


def test_error_in_the_cell_ends_the_capture(lazy, step):
    answer = lazy("%%hpu_capture bad --inputs x --warmup 0\nz = x * 2\n1 / 0")
    assert "ZeroDivisionError" in answer.error
    assert "was not captured" not in answer.text
    assert lazy.value("torch.hpu.is_current_stream_capturing()") is False


def test_cell_without_device_work_is_rejected(lazy):
    answer = lazy("%%hpu_capture nothing\nnumber = 3")
    assert "runs nothing on the device" in answer.text
    assert "Unknown graph" in lazy("%hpu_replay nothing").text


def test_replayed_training_step_trains(lazy):
    lazy(
        "torch.manual_seed(0)\nmodel = nn.Linear(4, 1).to('hpu')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n"
        "data = torch.randn(64, 4).to('hpu')\ntarget = data.sum(1, keepdim=True)"
    )
    answer = lazy(
        "%%hpu_capture train --inputs data,target\noptimizer.zero_grad(set_to_none=False)\n"
        "loss = nn.functional.mse_loss(model(data), target)\nloss.backward()\noptimizer.step()"
    )
    assert not answer.error
    first = lazy.value("loss.item()")
    lazy("%hpu_replay train -n 200")
    assert lazy.value("loss.item()") < 0.01 * first


def test_warmup_runs_precede_the_capture(lazy):
    lazy("calls = []\nx = torch.ones(2, device='hpu')")
    lazy("%%hpu_capture counted --inputs x --warmup 3\ncalls.append(1)\ny = x + 1")
    assert lazy.value("len(calls)") == 4
    lazy("%hpu_replay counted -n 5")
    assert lazy.value("len(calls)") == 4


def test_deleted_graph_cannot_be_replayed(lazy, step):
    assert "Graph step is deleted." in lazy("%hpu_graphs --delete step").text
    assert "Unknown graph 'step'" in lazy("%hpu_replay step").text


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%%hpu_capture g --inputs missing", "Unknown input variable 'missing'"),
        ("%%hpu_capture g --inputs number", "'number' is a int"),
        ("%%hpu_capture g --inputs host", "type %hpu_to host first"),
        ("%%hpu_capture g --warmup -1", "--warmup is -1"),
    ],
)
def test_wrong_capture_is_rejected_before_the_cell_runs(lazy, line, sentence):
    lazy("number, host, ran = 3, torch.ones(2), False")
    answer = lazy(f"{line}\nran = True")
    assert sentence in answer.text
    assert lazy.value("ran") is False


def test_replay_count_below_one_is_rejected(lazy, step):
    assert "-n is 0" in lazy("%hpu_replay step -n 0").text


def test_wrapped_model_gives_the_same_results(lazy):
    lazy("torch.manual_seed(0)\nmodel = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to('hpu').eval()")
    lazy("x = torch.randn(3, 4).to('hpu')\nwith torch.no_grad(): expected = model(x).clone()")
    answer = lazy("%hpu_wrap model --no-train --inputs x")
    assert "wrapped in HPU Graphs for inference" in answer.text
    assert "wrap_in_hpu_graph" in answer.text
    lazy("with torch.no_grad(): result = model(x)")
    assert lazy.value("torch.allclose(result.cpu(), expected.cpu())")
    assert "already wrapped for inference" in lazy("%hpu_wrap model --train").text


def test_training_mode_that_cannot_be_captured_names_the_inference_line(lazy):
    lazy(
        "class Model(nn.Linear):\n    def forward(self, x):\n"
        "        return super().forward(x) * x.sum().item()\n"
        "net, x = Model(4, 4).to('hpu'), torch.ones(2, 4, device='hpu')"
    )
    line = "%hpu_wrap net --no-train"
    assert line in lazy("%hpu_wrap net").text
    answer = lazy("net(x)")
    assert "RuntimeError" in answer.error
    assert line in answer.text


@pytest.mark.parametrize("how", ["--train", "--train --inputs data"])
def test_model_wrapped_for_training_trains(lazy, how):
    lazy(
        "torch.manual_seed(0)\nmodel = nn.Linear(4, 1).to('hpu')\n"
        "data = torch.randn(64, 4).to('hpu')"
    )
    answer = lazy(f"%hpu_wrap model {how}")
    assert "for training" in answer.text
    lazy(
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n"
        "target = data.sum(1, keepdim=True)\nlosses = []\n"
        "for _ in range(60):\n"
        "    optimizer.zero_grad(set_to_none=False)\n"
        "    loss = nn.functional.mse_loss(model(data), target)\n"
        "    loss.backward()\n    htcore.mark_step()\n"
        "    optimizer.step()\n    htcore.mark_step()\n"
        "    losses.append(loss.item())"
    )
    first, last = lazy.value("[losses[0], losses[-1]]")
    assert last < 0.1 * first


def test_functions_capture_and_replay(lazy):
    lazy(
        "import hpu_magic\nx = torch.ones(3, device='hpu')\n"
        "graph = hpu_magic.capture(lambda value: value * 3, 'tripled', inputs=[x])\n"
        "hpu_magic.replay('tripled', runs=2, input0=x + 1)"
    )
    assert lazy.value("graph.outputs['result'].cpu().tolist()") == [6, 6, 6]
    assert lazy.value("graph.replays") == 2
