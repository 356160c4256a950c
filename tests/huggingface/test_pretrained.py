"""Test loading and saving models of transformers, and using them in pipelines."""

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import bert, llama, tokens
from tiny_tokenizer import tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model and its tokenizer, and the model on the CPU."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    model = llama().eval()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder, model


def loaded(folder, **options):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **options)


def assert_equal_weights(found, expected):
    theirs = expected.state_dict()
    assert found.state_dict().keys() == theirs.keys()
    for name, weight in found.state_dict().items():
        assert torch.equal(weight.cpu(), theirs[name].cpu()), name


@proves(TRANSFORMERS, '`device_map="hpu"`, `"auto"`')
@pytest.mark.parametrize("device_map", ["hpu", "hpu:0", "auto", {"": "hpu"}])
def test_device_maps_place_the_model_on_the_card(saved, device_map):
    folder, original = saved
    model = loaded(folder, device_map=device_map)
    assert {str(each.device) for each in model.parameters()} == {"hpu:0"}
    assert_equal_weights(model, original)


@proves(TRANSFORMERS, '`device_map="auto"` with offload to the host and to disk')
@pytest.mark.parametrize("host", [{"cpu": "1GB"}, {"cpu": "25KB"}], ids=["host", "disk"])
def test_model_larger_than_the_card_is_offloaded(saved, tmp_path, host):
    folder, original = saved
    memory = {0: "60KB", **host}
    model = loaded(folder, device_map="auto", max_memory=memory, offload_folder=str(tmp_path))
    assert len({str(place) for place in model.hf_device_map.values()}) > 1
    with torch.inference_mode():
        found = model(tokens().to("hpu")).logits.cpu()
        torch.testing.assert_close(found, original(tokens()).logits, atol=1e-6, rtol=1e-5)


@proves(TRANSFORMERS, "`save_pretrained`, `from_pretrained`, safetensors straight to hpu")
def test_weights_are_saved_from_the_card_and_loaded(saved, tmp_path):
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
def test_weights_are_cast_while_loading(saved):
    model = loaded(saved[0], device_map="hpu", dtype=torch.bfloat16)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    assert torch.equal(model.lm_head.weight.cpu(), saved[1].lm_head.weight.bfloat16())


@proves(TRANSFORMERS, "`pipeline`: text generation and classification")
@pytest.mark.parametrize("place", [{"device": "hpu"}, {"device": 0}, {"device_map": "auto"}])
def test_text_generation_pipeline_equals_the_cpu(saved, place):
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
def test_classification_pipeline_equals_the_cpu():
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
def test_pipeline_is_moved_with_its_model(saved, shell, run):
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
