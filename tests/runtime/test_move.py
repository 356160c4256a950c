"""Test %hpu_to and hpu_magic.to."""

from collections import namedtuple

import pytest

import hpu_magic
from hpu_magic.runtime.device.move import move

Pair = namedtuple("Pair", "left right")


@pytest.fixture
def ns(shell, torch):
    shell.user_ns["torch"] = torch
    return shell.user_ns


def devices(tensors):
    return {str(tensor.device) for tensor in tensors}


def test_model_keeps_its_parameter_objects_and_tied_weights(run, ns, torch):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 10, bias=False))
    model[1].weight = model[0].weight
    weight = model[0].weight
    values = weight.detach().clone()
    ns["model"] = model
    report = run("%hpu_to model").result
    assert ns["model"] is model
    assert model[0].weight is weight
    assert model[1].weight is weight
    assert devices(model.parameters()) == {"hpu:0"}
    assert torch.equal(weight.cpu(), values)
    assert report.sizes == {"model": 10 * 8 * 4}


def test_gradients_and_buffers_move_too(run, ns, torch):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    model(torch.ones(2, 3)).sum().backward()
    ns["model"] = model
    run("%hpu_to model")
    assert devices(parameter.grad for parameter in model.parameters()) == {"hpu:0"}
    assert devices(model.buffers()) == {"hpu:0"}


def test_parameters_that_share_memory_still_share_it(torch, shell):
    base = torch.arange(12.0)
    module = torch.nn.Module()
    module.all = torch.nn.Parameter(base)
    module.part = torch.nn.Parameter(base[4:8])
    hpu_magic.to(module)
    with torch.no_grad():
        module.all[4] = 99.0
    assert module.part[0].item() == 99.0


def views_on(device):
    """Return a complex and a real tensor with views that share their memory."""
    import torch

    z = torch.tensor([1 + 2j, 3 - 4j], device=device)
    x = torch.arange(3.0, device=device)
    return {
        "conjugate": z.conj(),
        "plain": z,
        "negative": z.conj().imag,
        "imaginary": z.imag,
        "negated": torch._neg_view(x),
        "real": x,
        "one": torch.tensor([1j], device=device).conj(),
    }


@pytest.mark.parametrize("device", ["hpu", "cpu"])
def test_conjugate_and_negative_views_keep_values_and_shared_memory(torch, shell, device):
    moved = hpu_magic.to(views_on("cpu" if device == "hpu" else "hpu"), device=device)
    assert {value.device.type for value in moved.values()} == {device}
    expected = {name: value.tolist() for name, value in views_on("cpu").items()}
    assert {name: value.tolist() for name, value in moved.items()} == expected
    moved["plain"][0] = 5 + 6j
    moved["real"][1] = 7.0
    moved["imaginary"][1] = 8.0
    assert moved["conjugate"].tolist() == [5 - 6j, 3 + 4j]
    assert moved["negated"].tolist() == [0.0, -7.0, -2.0]
    assert moved["negative"].tolist() == [-2.0, -8.0]


def test_objects_already_on_the_device_are_not_moved(run, ns, torch, own_card):
    ns["model"], ns["x"] = torch.nn.Linear(4, 1).to("hpu"), torch.ones(2)
    same = ns["model"].weight
    first = run("%hpu_to model")
    assert first.result.sizes == {"model": 0}
    assert ns["model"].weight is same
    title = f"Nothing was moved: model is already on {own_card}"
    assert repr(first.result).splitlines()[0] == title
    assert f"Moved 8 B to {own_card} in " in run("%hpu_to model x").out
    again = repr(run("%hpu_to model x").result).splitlines()
    assert again[0] == f"Nothing was moved: model and x are already on {own_card}"
    assert [line.split("  ")[1] for line in again[1:]] == ["free on the device"]
    back = run("%hpu_to x --device cpu")
    assert back.out.count("Moved 8 B to cpu") == 1
    assert repr(run("%hpu_to x --device cpu").result) == "Nothing was moved: x is already on cpu"


def test_moved_model_trains_with_its_existing_optimizer(run, ns, torch):
    ns["model"] = torch.nn.Linear(4, 1)
    ns["opt"] = torch.optim.Adam(ns["model"].parameters(), lr=0.1)
    ns["model"](torch.ones(2, 4)).sum().backward()
    ns["opt"].step()
    cell = run("%hpu_to model opt")
    assert "Warning" not in cell.out
    before = ns["model"].weight.detach().cpu()
    run("opt.zero_grad(); model(torch.ones(2, 4, device='hpu')).sum().backward(); opt.step()")
    assert not torch.equal(before, ns["model"].weight.detach().cpu())
    state = ns["opt"].state[ns["model"].weight]
    assert state["exp_avg"].device.type == "hpu"
    assert state["step"].device.type == "cpu"


def test_containers_are_rebuilt_with_moved_tensors(run, ns, torch):
    shared = torch.ones(3)
    ns["batch"] = {"x": shared, "more": [shared, Pair(torch.zeros(2), 7)], "id": "a"}
    ns["pair"] = (torch.ones(1), torch.ones(1))
    run("%hpu_to batch pair")
    batch = ns["batch"]
    assert batch["x"].device.type == "hpu"
    assert batch["more"][0] is batch["x"]
    assert isinstance(batch["more"][1], Pair)
    assert batch["more"][1].left.device.type == "hpu"
    assert (batch["more"][1].right, batch["id"]) == (7, "a")
    assert devices(ns["pair"]) == {"hpu:0"}


def test_attribute_of_an_object_is_moved(run, ns, torch):
    class Holder:
        data = torch.ones(2)

    ns["holder"] = Holder()
    run("%hpu_to holder.data")
    assert ns["holder"].data.device.type == "hpu"


def test_leaf_tensor_stays_a_leaf(torch, shell):
    moved = hpu_magic.to(torch.ones(2, requires_grad=True))
    assert moved.is_leaf
    assert moved.requires_grad


def test_dtype_converts_only_floating_point_tensors(run, ns, torch):
    ns["x"] = {"f": torch.ones(2), "i": torch.ones(2, dtype=torch.int64)}
    run("%hpu_to x --dtype bf16")
    assert ns["x"]["f"].dtype == torch.bfloat16
    assert ns["x"]["i"].dtype == torch.int64


def test_float64_uses_four_bytes_per_element_on_the_device(torch):
    wide = torch.zeros(1 << 18, dtype=torch.float64)
    before = torch.hpu.memory_allocated()
    report = move({"wide": wide, "whole": torch.zeros(1 << 18, dtype=torch.int64)})
    assert report.sizes == {"wide": 1 << 20, "whole": 2 << 20}
    assert torch.hpu.memory_allocated() - before == 3 << 20
    assert move({"wide": report.moved["wide"]}, device="cpu").sizes == {"wide": 2 << 20}


@pytest.mark.parametrize(
    ("environment", "bytes_of_int64"),
    [
        ({"PT_HPU_LAZY_MODE": "1"}, 4),
        ({"PT_HPU_LAZY_MODE": "1", "PT_ENABLE_INT64_SUPPORT": "true"}, 8),
        ({"HPU_MAGIC_CARD": "gaudi"}, 4),
    ],
)
def test_size_of_int64_depends_on_mode_generation_and_flag(
    environment, bytes_of_int64, forked_script
):
    code = """
    import torch
    import hpu_magic
    from hpu_magic.runtime.device.move import move
    report = move({"whole": torch.zeros(1024, dtype=torch.int64)})
    print(report.sizes["whole"], torch.hpu.memory_allocated())
    """
    printed = forked_script(code, simulated=True, **environment)
    assert printed.split() == [str(1024 * bytes_of_int64)] * 2


def test_model_keeps_its_values_when_moved_back(run, ns, torch):
    ns["model"] = torch.nn.Linear(2, 2)
    values = ns["model"].weight.detach().clone()
    run("%hpu_to model")
    run("%hpu_to model --device cpu")
    assert ns["model"].weight.device.type == "cpu"
    assert torch.equal(ns["model"].weight, values)


def test_report_shows_bytes_time_and_free_memory(run, ns, torch):
    ns["x"] = torch.zeros(1024, 1024)
    cell = run("%hpu_to x")
    assert "4.00 MiB" in cell.out
    assert "simulated" in cell.out
    assert "free on the device" in cell.out
    assert cell.result.free == torch.hpu.mem_get_info()[0]
    assert cell.result.seconds > 0
    assert "<table>" in cell.result._repr_html_()


def test_optimizer_of_other_parameters_causes_a_warning(run, ns, torch):
    ns["model"] = torch.nn.Linear(2, 2)
    ns["stale"] = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    cell = run("%hpu_to model")
    assert "stale updates parameters that are not in model" in cell.out


def test_device_index_selects_the_card_of_the_process(forked_script):
    code = """
        import torch, hpu_magic
        moved = hpu_magic.to(torch.ones(2), device="hpu:3")
        print(moved.device, hpu_magic.status().card.module_id)
    """
    assert forked_script(code, simulated=True) == "hpu:0 3\n"


def test_report_names_an_optimizer_whose_state_was_not_moved(run, ns, torch):
    ns["model"] = torch.nn.Linear(2, 2)
    ns["opt"] = torch.optim.Adam(ns["model"].parameters())
    ns["model"](torch.ones(1, 2)).sum().backward()
    ns["opt"].step()
    assert "%hpu_to opt" in run("%hpu_to model").out


@pytest.mark.parametrize(
    ("prepare", "line", "sentence"),
    [
        ("", "nothing_here", "Unknown variable 'nothing_here'"),
        ("modell = 1", "model", "did you mean 'modell'?"),
        ("text = 'abc'", "text", "text is a str"),
        ("empty = {'a': 1}", "empty", "contains no tensors"),
        ("batch = {'x': torch.ones(1), 'f': open}", "batch", "batch['f'] is a function"),
        ("x = torch.ones(1)", "x --device cuda", "Unknown device 'cuda'"),
        ("x = torch.ones(1)", "x --device hpu:99", "habana active device: 0 != 99. This process"),
        ("x = torch.ones(1)", "x --dtype int7", "bf16, fp16 or fp32 after --dtype, not 'int7'"),
        ("x = torch.ones(1)", "x.shap", "has no attribute 'shap': did you mean 'shape'"),
        ("x = torch.ones(1, device='meta')", "x", "x is on the meta device"),
        ("m = torch.nn.LazyLinear(3)", "m", "m.weight has no shape yet"),
        ("x = [torch.ones(1)]; x.append(x)", "x", "contains itself"),
        (
            "m = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters(), lr=1)",
            "o",
            "move the model",
        ),
    ],
)
def test_invalid_request_is_rejected_and_moves_nothing(
    run, rejected, ns, torch, prepare, line, sentence
):
    ns["first"] = torch.ones(1)
    run(prepare or "pass")
    assert sentence in rejected(f"%hpu_to first {line}")
    assert ns["first"].device.type == "cpu"


def test_request_larger_than_the_card_is_rejected_before_anything_moves(rejected, ns, torch):
    size = torch.hpu.mem_get_info()[1]
    ns["small"] = torch.nn.Linear(2, 2)
    ns["huge"] = torch.empty(1).as_strided((size // 4 + 1024,), (0,))
    used = torch.hpu.memory_allocated()
    message = rejected("%hpu_to small huge")
    assert "cannot fit" in message
    assert "has only 96.0 GiB; use dtype bf16, or" in message
    assert devices(ns["small"].parameters()) == {"cpu"}
    assert torch.hpu.memory_allocated() == used


def test_shared_memory_is_counted_once(run, ns, torch):
    base = torch.zeros(1000)
    ns["views"] = [base, base[:500], base.view(10, 100)]
    assert run("%hpu_to views").result.sizes == {"views": 4000}


def test_function_returns_the_moved_objects_and_rejects_others(torch, shell):
    model, x = hpu_magic.to(torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert model(x).device.type == "hpu"
    with pytest.raises(ValueError, match=r"^Argument 1 is an int, which cannot be moved: pass"):
        hpu_magic.to(3)
