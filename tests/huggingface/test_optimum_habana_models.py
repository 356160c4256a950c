"""Test models and pipelines of optimum-habana against their originals on the CPU."""

import pytest
from features import OPTIMUM_HABANA, proves
from optimum_habana_runs import PYTHON, in_both_modes, results

if not PYTHON:
    pytest.skip("`make huggingface` runs optimum-habana", allow_module_level=True)

CLASSES = {
    "Llama": "GaudiLlamaForCausalLM",
    "GPT-2": "GaudiGPT2LMHeadModel",
    "BERT": "BertForSequenceClassification",  # optimum-habana changes methods of this class
    "T5": "GaudiT5ForConditionalGeneration",
    "ViT": "ViTForImageClassification",
    "Whisper": "GaudiWhisperForConditionalGeneration",
}


@proves(
    OPTIMUM_HABANA,
    "`adapt_transformers_to_gaudi`: training step and inference of Llama, GPT-2, BERT, T5, "
    "ViT, Whisper",
)
@in_both_modes
@pytest.mark.parametrize("name", CLASSES)
def test_adapted_models_train_like_those_of_transformers(mode, name):
    found, expected = (results("adapted", where)[name] for where in (mode, "cpu"))
    assert (found["device"], expected["device"]) == ("hpu", "cpu")
    assert (found["class"], expected["class"]) == (
        CLASSES[name],
        CLASSES[name].removeprefix("Gaudi"),
    )
    assert abs(expected["losses"][0] - expected["losses"][2]) > 1e-2, "nothing was learned"
    assert found["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert found["logits"] == pytest.approx(expected["logits"], abs=1e-4)


@proves(
    OPTIMUM_HABANA,
    "`adapt_transformers_to_gaudi`: inference of Mixtral, Qwen2-MoE",
    "`adapt_transformers_to_gaudi`: training of Mixtral, Qwen2-MoE",
)
@in_both_modes
@pytest.mark.parametrize("name", ["Mixtral", "Qwen2-MoE"])
def test_mixtures_of_experts_infer_the_same_but_do_not_train_experts(mode, name):
    found, expected = (results("adapted", where)[name] for where in (mode, "cpu"))
    assert found["class"] == f"Gaudi{expected['class']}"
    assert (found["device"], expected["device"]) == ("hpu", "cpu")
    assert max(expected["logits"]) > 0.1
    assert found["logits"] == pytest.approx(expected["logits"], abs=1e-5)
    assert found["without gradient"] == found["experts and routers"]
    assert not set(expected["experts and routers"][:4]) & set(expected["without gradient"])


def assert_drawn(mode, case, tolerance=1e-4):
    found, expected = results("draw", mode)[case], results("draw", "cpu")["plain"]
    assert (found["device"], expected["device"]) == ("hpu", "cpu")
    assert found["again"]
    assert len(set(expected["pixels"])) > 700
    assert found["pixels"] == pytest.approx(expected["pixels"], abs=tolerance)
    return found


@proves(OPTIMUM_HABANA, "`GaudiStableDiffusionPipeline`, float32 and autocast to bf16")
@in_both_modes
def test_prompt_is_drawn_like_on_the_cpu(mode):
    plain = assert_drawn(mode, "plain")
    reduced = assert_drawn(mode, "bf16", tolerance=3e-2)
    assert reduced["pixels"] != pytest.approx(plain["pixels"], abs=1e-4), "nothing was rounded"


@proves(OPTIMUM_HABANA, "`GaudiStableDiffusionPipeline`: HPU Graphs")
def test_graphs_change_no_picture_and_need_lazy_mode():
    assert assert_drawn("lazy", "graphs")["replays"] > 0
    assert (
        "HPU Graphs are only supported in lazy mode"
        in results("draw", "eager")["graphs"]["refused"]
    )


@proves(OPTIMUM_HABANA, "`SentenceTransformer.encode` of sentence-transformers 3.3")
def test_embeddings_equal_the_cpu_and_need_lazy_mode():
    found, expected = (results("adapted", where)["sentences"] for where in ("lazy", "cpu"))
    assert (found["device"], expected["device"]) == ("hpu", "cpu")
    assert found["replays"] > 0
    assert found["again"]
    for ours, theirs in zip(found["embeddings"], expected["embeddings"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert (
        "HPU Graphs are only supported in lazy mode"
        in results("adapted", "eager")["sentences"]["refused"]
    )
