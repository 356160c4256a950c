"""Models from files to the device and back, and pipelines over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpu_magic.simulator import activate, cards

activate(announce=False)  # before a library asks PyTorch which accelerator there is
pytest.importorskip("transformers")

import torch  # noqa: E402
from features import TRANSFORMERS, proves  # noqa: E402
from tiny_models import bert, llama, tokens  # noqa: E402
from tiny_tokenizer import tokenizer  # noqa: E402


@pytest.fixture(autouse=True)
def _device(shell):
    return shell


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[Path, Any]:
    """A model's folder, with its tokenizer, and the model itself on the CPU."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    model = llama().eval()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder, model


def loaded(folder: Path, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **options)


def assert_equal_weights(found: Any, expected: Any) -> None:
    theirs = expected.state_dict()
    assert found.state_dict().keys() == theirs.keys()
    for name, weight in found.state_dict().items():
        assert torch.equal(weight.cpu(), theirs[name].cpu()), name


@proves(TRANSFORMERS, '`device_map="hpu"`, `"auto"`')
@pytest.mark.parametrize("device_map", ["hpu", "hpu:0", "auto", {"": "hpu"}])
def test_device_maps(saved, device_map):
    folder, original = saved
    model = loaded(folder, device_map=device_map)
    assert {str(each.device) for each in model.parameters()} == {"hpu:0"}
    assert_equal_weights(model, original)


@proves(TRANSFORMERS, '`device_map="auto"` with offload to the host and to disk')
@pytest.mark.parametrize("host", [{"cpu": "1GB"}, {"cpu": "25KB"}], ids=["host", "disk"])
def test_what_the_card_cannot_hold_lies_elsewhere(saved, tmp_path, host):
    folder, original = saved
    memory = {0: "60KB", **host}
    model = loaded(folder, device_map="auto", max_memory=memory, offload_folder=str(tmp_path))
    assert len({str(place) for place in model.hf_device_map.values()}) > 1
    with torch.inference_mode():
        found = model(tokens().to("hpu")).logits.cpu()
        torch.testing.assert_close(found, original(tokens()).logits, atol=1e-6, rtol=1e-5)


@proves(TRANSFORMERS, "`device_map` that names a second card")
@pytest.mark.parametrize("whole", [True, False])
def test_a_second_card_is_refused(saved, whole):
    other = "hpu:2" if cards.acquire().module_id == 1 else "hpu:1"
    device_map = other if whole else {"model": "hpu:0", "lm_head": other}
    with pytest.raises(RuntimeError, match=r"active device: 0 != .\. This process uses HPU"):
        loaded(saved[0], device_map=device_map)


@proves(TRANSFORMERS, 'a model on `meta`, moved by `.to("hpu")`')
def test_a_model_without_data_is_refused():
    with torch.device("meta"):
        model = llama()
    with pytest.raises(NotImplementedError, match=r"no data! Please use .*to_empty"):
        model.to("hpu")


@proves(TRANSFORMERS, "`save_pretrained`, `from_pretrained`, safetensors straight to hpu")
def test_weights_go_from_the_card_to_files_and_back(saved, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file

    folder, original = saved
    loaded(folder, device_map="hpu").save_pretrained(tmp_path)
    assert_equal_weights(loaded(tmp_path), original)
    weights = load_file(tmp_path / "model.safetensors", device="hpu")
    assert {str(each.device) for each in weights.values()} == {"hpu:0"}
    with safe_open(tmp_path / "model.safetensors", "pt", device="hpu:0") as file:
        head = file.get_slice("lm_head.weight")[:3]
        assert head.device.type == "hpu"
        assert torch.equal(head.cpu(), original.lm_head.weight[:3])


@proves(TRANSFORMERS, "`save_pretrained`, `from_pretrained`, safetensors straight to hpu")
def test_weights_are_cast_on_their_way(saved):
    model = loaded(saved[0], device_map="hpu", dtype=torch.bfloat16)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    assert torch.equal(model.lm_head.weight.cpu(), saved[1].lm_head.weight.bfloat16())


@proves(TRANSFORMERS, "`pipeline`: text generation and classification")
@pytest.mark.parametrize("place", [{"device": "hpu"}, {"device": 0}, {"device_map": "auto"}])
def test_a_pipeline_generates(saved, place):
    from transformers import pipeline

    folder = str(saved[0])
    answers = [
        pipeline("text-generation", model=folder, **where) for where in (place, {"device": "cpu"})
    ]
    assert [each.device.type for each in answers] == ["hpu", "cpu"]
    found, expected = (
        each(["w1 w2", "w3 w4 w5"], max_new_tokens=5, do_sample=False) for each in answers
    )
    assert found == expected


@proves(TRANSFORMERS, "`pipeline`: text generation and classification")
def test_a_pipeline_classifies():
    from transformers import pipeline

    found = []
    for device in ("hpu", "cpu"):
        torch.manual_seed(0)
        classify = pipeline("text-classification", bert(), tokenizer=tokenizer(), device=device)
        found.append(classify(["w1 w2", "w9"], batch_size=1, top_k=None))
    for ours, theirs in zip(*found, strict=True):
        assert [each["label"] for each in ours] == [each["label"] for each in theirs]
        scores = [[each["score"] for each in one] for one in (ours, theirs)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@proves(TRANSFORMERS, "`%hpu_to` and `hpu_magic.to` of a pipeline")
def test_a_pipeline_is_moved_with_its_model(saved, shell, run):
    from transformers import pipeline

    from hpu_magic.magics.kinds import movable

    shell.user_ns["answer"] = answer = pipeline("text-generation", str(saved[0]), device="cpu")
    assert movable(answer)
    expected = answer("w1 w2", max_new_tokens=5, do_sample=False)
    for device in ("hpu", "cpu"):
        assert run(f"%hpu_to answer --device {device}").error is None
        assert shell.user_ns["answer"] is answer
        assert answer.device.type == answer.model.device.type == device
        assert answer("w1 w2", max_new_tokens=5, do_sample=False) == expected
