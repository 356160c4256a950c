"""sentence-transformers on the device: the CPU's embeddings, scores and training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpu_magic.simulator import activate

activate(announce=False)  # before a library asks PyTorch which accelerator there is
pytest.importorskip("sentence_transformers")

import torch  # noqa: E402
from features import SENTENCE_TRANSFORMERS, proves  # noqa: E402
from tiny_models import bert  # noqa: E402
from tiny_tokenizer import tokenizer  # noqa: E402

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
ATTENTION = ["eager", "sdpa"]
SENTENCES = ["w1 w2", "w3 w4 w5 w6 w7", "w9", "w8 w1 w2"]


@pytest.fixture(autouse=True)
def _device(shell):
    return shell


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A model with what makes one vector of a sentence of it, in a folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    bert().bert.save_pretrained(folder / "transformer")
    tokenizer().save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"))
    modules = [transformer, Pooling(transformer.get_embedding_dimension())]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "whole"))
    return folder / "whole"


def loaded(folder: Path, attention: str = "sdpa", **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    attends = {"attn_implementation": attention}
    return SentenceTransformer(str(folder), model_kwargs=attends, **options)


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.shape == (len(SENTENCES), 32)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def embedded(model: Any) -> torch.Tensor:
    return model.encode(SENTENCES, convert_to_tensor=True, batch_size=2).cpu()


@proves(SENTENCE_TRANSFORMERS, "`SentenceTransformer.encode`")
@pytest.mark.parametrize("attention", ATTENTION)
def test_the_librarys_graphs_are_refused(saved, attention):
    model = loaded(saved, attention)
    assert str(model.device) == "hpu:0"
    why = "reading a value on the host is not supported" if LAZY else "HPU Graphs are for lazy mode"
    with pytest.raises(RuntimeError, match=why):
        model.encode(SENTENCES)


@proves(
    SENTENCE_TRANSFORMERS, "`SentenceTransformer.encode` after `model.is_hpu_graph_enabled = True`"
)
@pytest.mark.parametrize("attention", ATTENTION)
def test_embeddings_are_the_cpus_without_graphs(saved, attention):
    model = loaded(saved, attention)
    model.is_hpu_graph_enabled = True
    expected = embedded(loaded(saved, attention, device="cpu"))
    assert_equal(embedded(model), expected)
    similar = model.similarity(embedded(model), expected)
    torch.testing.assert_close(similar.diagonal(), torch.ones(len(SENTENCES)))


@proves(SENTENCE_TRANSFORMERS, "`CrossEncoder`: `predict`, `rank`")
def test_pairs_are_scored(tmp_path):
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
    found, ranked = (one.rank("w1 w2", SENTENCES) for one in (judge, cpus))
    assert [each["corpus_id"] for each in found] == [each["corpus_id"] for each in ranked]


@proves(SENTENCE_TRANSFORMERS, "`%hpu_to` of a model")
def test_a_model_is_moved(saved, shell, run):
    shell.user_ns["model"] = model = loaded(saved, device="cpu")
    expected = embedded(model)
    assert run("%hpu_to model").error is None
    assert shell.user_ns["model"] is model
    assert str(model.device) == "hpu:0"
    model.is_hpu_graph_enabled = True
    assert_equal(embedded(model), expected)
