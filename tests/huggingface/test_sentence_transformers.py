"""Test sentence-transformers on the device against the CPU."""

import os

import pytest

pytest.importorskip("sentence_transformers")

import torch
from features import SENTENCE_TRANSFORMERS, proves
from tiny_models import bert
from tiny_tokenizer import tokenizer

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
ATTENTION = ["eager", "sdpa"]
SENTENCES = ["w1 w2", "w3 w4 w5 w6 w7", "w9", "w8 w1 w2"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model that embeds sentences."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    bert().bert.save_pretrained(folder / "transformer")
    tokenizer().save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"))
    modules = [transformer, Pooling(transformer.get_embedding_dimension())]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return folder / "model"


def loaded(folder, attention="sdpa", **options):
    from sentence_transformers import SentenceTransformer

    attends = {"attn_implementation": attention}
    return SentenceTransformer(str(folder), model_kwargs=attends, **options)


def assert_equal(found, expected):
    assert expected.shape == (len(SENTENCES), 32)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def embedded(model):
    return model.encode(SENTENCES, convert_to_tensor=True, batch_size=2).cpu()


@proves(SENTENCE_TRANSFORMERS, "`SentenceTransformer.encode`")
@pytest.mark.parametrize("attention", ATTENTION)
def test_encode_refuses_the_librarys_graphs(saved, attention):
    model = loaded(saved, attention)
    assert str(model.device) == "hpu:0"
    why = "reading a value on the host is not supported" if LAZY else "only supported in lazy mode"
    with pytest.raises(RuntimeError, match=why):
        model.encode(SENTENCES)


@proves(
    SENTENCE_TRANSFORMERS, "`SentenceTransformer.encode` after `model.is_hpu_graph_enabled = True`"
)
@pytest.mark.parametrize("attention", ATTENTION)
def test_embeddings_without_graphs_equal_the_cpu(saved, attention):
    model = loaded(saved, attention)
    model.is_hpu_graph_enabled = True
    expected = embedded(loaded(saved, attention, device="cpu"))
    assert_equal(embedded(model), expected)
    similar = model.similarity(embedded(model), expected)
    torch.testing.assert_close(similar.diagonal(), torch.ones(len(SENTENCES)))


@proves(SENTENCE_TRANSFORMERS, "`CrossEncoder`: `predict`, `rank`")
def test_cross_encoder_equals_the_cpu(tmp_path):
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    bert(num_labels=1).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    judge, cpus = (CrossEncoder(str(tmp_path), device=device) for device in (None, "cpu"))
    assert (str(judge.device), str(cpus.device)) == ("hpu:0", "cpu")
    pairs = [("w1 w2", other) for other in SENTENCES]
    expected = cpus.predict(pairs)
    assert len(set(expected)) == len(SENTENCES)
    assert judge.predict(pairs) == pytest.approx(expected, abs=1e-6)
    found, ranked = (each.rank("w1 w2", SENTENCES) for each in (judge, cpus))
    assert [each["corpus_id"] for each in found] == [each["corpus_id"] for each in ranked]


@proves(SENTENCE_TRANSFORMERS, "`%hpu_to` of a model")
def test_model_is_moved_to_the_card(saved, shell, run):
    shell.user_ns["model"] = model = loaded(saved, device="cpu")
    expected = embedded(model)
    assert run("%hpu_to model").error is None
    assert shell.user_ns["model"] is model
    assert str(model.device) == "hpu:0"
    model.is_hpu_graph_enabled = True
    assert_equal(embedded(model), expected)
