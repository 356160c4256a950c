"""Test models of transformers that `wrap` runs in HPU Graphs against the CPU."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from features import TRANSFORMERS, proves

PAIR = f"""
import json, sys, warnings
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tiny_models
from tiny_models import tokens
import hpu_magic
from hpu_magic.runtime.graphs.replays import counter

def pair(name, **options):
    torch.manual_seed(0)
    cpu = getattr(tiny_models, name)(**options).eval()
    wrapped = getattr(tiny_models, name)(**options).eval()
    wrapped.load_state_dict(cpu.state_dict())
    hpu_magic.wrap(wrapped.to("hpu"), train=False)
    return cpu, wrapped

def captures():
    wrapped = hpu_magic.graphs().wrapped[-1:]
    return [use.calls for each in wrapped for use in each.watch.uses.values()]

def prompt(length, padding=0, seed=0):
    text = tokens(2, length, seed=seed)
    mask = torch.ones_like(text)
    mask[0, :padding] = 0
    return {{"input_ids": text, "attention_mask": mask}}

def both(models, inputs, **options):
    results = []
    for model in models:
        torch.manual_seed(5)
        inputs_there = {{name: value.to(model.device) for name, value in inputs.items()}}
        results.append(model.generate(**inputs_there, max_length=20, **options))
    return results

def warned(function):
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        result = function()
    return result, [str(each.message) for each in records]
"""


@pytest.fixture
def answer(lazy_process):
    """A function that runs code after `PAIR` in lazy mode and decodes its last line as JSON."""
    return lambda code: json.loads(lazy_process(PAIR + code)[-1])


STRATEGIES = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 5},
    "beams": {"do_sample": False, "num_beams": 3},
}


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "mixtral"])
def test_graphs_generate_the_tokens_of_the_cpu_and_are_captured_once(answer, name, strategy):
    equal, replays, captured = answer(
        f"""
models = pair({name!r})
equal, replays = [], []
counter.open()
for length, padding, seed in [(6, 0, 1), (8, 3, 2), (6, 2, 3), (8, 0, 4)]:
    before = counter.total
    cpu, hpu = both(models, prompt(length, padding, seed), **{STRATEGIES[strategy]!r})
    equal.append(torch.equal(cpu, hpu.cpu()))
    replays.append(counter.total - before)
counter.close()
print(json.dumps([equal, replays, len(captures())]))
"""
    )
    assert equal == [True] * 4
    # One graph for each of two prompt lengths and one for a step; the T5 encoder has no graph.
    assert captured == (1 if name == "t5" else 3)
    assert min(replays) > 3


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_second_generate_captures_nothing_and_keeps_no_memory(answer):
    calls, grown = answer(
        """
models = pair("llama")
both(models, prompt(6), do_sample=False)
both(models, prompt(6, seed=1), do_sample=False)
before, first = torch.hpu.memory_stats()["InUse"], captures()
both(models, prompt(6, seed=2), do_sample=False, return_dict_in_generate=True)
torch.hpu.synchronize()
grown = torch.hpu.memory_stats()["InUse"] - before
print(json.dumps([[first, captures()], grown]))
"""
    )
    first, second = calls
    assert len(first) == len(second) == 2
    assert second[0] == first[0] + 1
    assert grown == 0


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_graphs_for_longer_texts_replace_graphs_for_shorter_ones(answer):
    kinds, equal = answer(
        """
models = pair("llama")
both(models, prompt(6), do_sample=False)
cpu, hpu = (
    model.generate(**{name: one.to(model.device) for name, one in prompt(6).items()},
                   max_new_tokens=30, do_sample=False)
    for model in models
)
both(models, prompt(6), do_sample=False)
watch = hpu_magic.graphs().wrapped[-1].watch
masks = [dict(kind)["attention_mask"][-1] for kind in watch.uses]
print(json.dumps([masks, torch.equal(cpu, hpu.cpu())]))
"""
    )
    assert kinds == [35, 35]
    assert equal


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_returned_tensors_are_not_overwritten(answer):
    difference, length = answer(
        """
models = pair("llama")
options = dict(do_sample=False, return_dict_in_generate=True, output_hidden_states=True,
               output_scores=True)
cpu, hpu = both(models, prompt(6, 2), **options)
both(models, prompt(6, seed=3), **options)
def flat(result):
    hidden = [layer for step in result.hidden_states for layer in step]
    layers = result.past_key_values.layers
    cached = [tensor[:, :, :19] for layer in layers for tensor in (layer.keys, layer.values)]
    return [*hidden, *result.scores, *cached]
differences = [
    (ours.cpu() - theirs)[theirs.isfinite()].abs().max().item()
    for ours, theirs in zip(flat(hpu), flat(cpu), strict=True)
]
print(json.dumps([max(differences), hpu.past_key_values.get_seq_length().item()]))
"""
    )
    assert difference < 1e-5
    assert length == 19


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_dynamic_cache_runs_without_graphs_and_warns(answer):
    equal, sentences, captured = answer(
        """
models = pair("llama")
def generate():
    return [both(models, prompt(6, seed=seed), do_sample=False, cache_implementation="dynamic")
            for seed in range(2)]
results, sentences = warned(generate)
print(json.dumps([[torch.equal(cpu, hpu.cpu()) for cpu, hpu in results], sentences, captures()]))
"""
    )
    assert equal == [True, True]
    assert sentences == [
        "LlamaForCausalLM ran without HPU Graphs: its DynamicCache allocates memory for each "
        "token, but a graph always uses the same memory: generate with "
        'cache_implementation="static", or call the model with a StaticCache.'
    ]
    assert captured == []


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_layers_that_count_tokens_in_python_run_without_graphs(answer):
    equal, sentences = answer(
        """
torch.manual_seed(0)
from transformers import MistralConfig, MistralForCausalLM
config = MistralConfig(**{**tiny_models._LLAMA, "sliding_window": 8})
models = [MistralForCausalLM(config).eval() for _ in range(2)]
models[1].load_state_dict(models[0].state_dict())
hpu_magic.wrap(models[1].to("hpu"), train=False)
(cpu, hpu), sentences = warned(lambda: both(models, prompt(6), do_sample=False))
print(json.dumps([torch.equal(cpu, hpu.cpu()), sentences]))
"""
    )
    assert equal
    assert sentences == [
        "MistralForCausalLM ran without HPU Graphs: the cache's layers StaticSlidingWindowLayer "
        "count tokens in Python, which a replay does not run."
    ]


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_growing_inputs_without_a_cache_cause_a_warning(answer):
    equal, sentences = answer(
        """
models = pair("llama")
(cpu, hpu), sentences = warned(lambda: both(models, prompt(15), do_sample=False, use_cache=False))
print(json.dumps([torch.equal(cpu, hpu.cpu()), sentences]))
"""
    )
    assert equal
    (sentence,) = sentences
    assert sentence.startswith(
        "LlamaForCausalLM was called with 5 different input shapes (input_ids (2, 15), (2, 16), "
        "(2, 17), (2, 18), (2, 19)), and each shape needs its own capture and its own graph ("
    )
    assert sentence.endswith(
        ": pad the inputs in dimension 1 to multiples of 16, which reduces the 5 sizes to 2, and "
        "let generate use a static cache, which does not grow with the text."
    )


@proves(TRANSFORMERS, "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`")
def test_graphs_write_to_the_callers_cache(answer):
    differences, replayed = answer(
        """
from transformers import StaticCache
counter.open()
results, before = [], counter.total
for model in pair("llama"):
    cache = StaticCache(config=model.config, max_cache_len=16)
    logits = []
    with torch.no_grad():
        for text in (tokens(2, 5), *tokens(2, 4, seed=1).split(1, 1)):
            logits.append(model(text.to(model.device), past_key_values=cache).logits[:, -1].cpu())
    results.append(torch.stack([*logits, cache.layers[0].keys.cpu().sum().expand_as(logits[0])]))
replayed = counter.total - before
counter.close()
print(json.dumps([(results[0] - results[1]).abs().max().item(), replayed]))
"""
    )
    assert differences < 1e-5
    assert replayed == 3


@proves(TRANSFORMERS, "models in HPU Graphs, called directly")
@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("llama", "text"),
        ("gpt2", "text"),
        ("bert", "classified_text"),
        ("t5", "text"),
        ("vit", "classified_pictures"),
        ("whisper", "transcribed_sound"),
        ("llava", "text_with_pictures"),
    ],
)
def test_wrapped_model_equals_the_cpu_with_and_without_padding(answer, name, batch):
    differences, replays = answer(
        f"""
models = pair({name!r})
differences = []
for padding in (0, 2, None):
    inputs = tiny_models.{batch}()
    if "attention_mask" in inputs:
        inputs["attention_mask"][0, :padding] = 0
        if padding is None:
            del inputs["attention_mask"]
    with torch.no_grad():
        cpu, hpu = (
            model(**{{key: value.to(model.device) for key, value in inputs.items()}})
            for model in models
        )
    differences += [(cpu[name] - hpu[name].cpu()).abs().max().item() for name in ("logits", "loss")]
print(json.dumps([max(differences), sum(calls - 1 for calls in captures())]))
"""
    )
    assert differences < 1e-5
    # Llava reads the positions of pictures in the text on the host.
    assert replays == (0 if name == "llava" else 2)


def test_generate_with_built_in_graphs_is_not_replaced(answer):
    assert answer(
        """
from transformers import LlamaConfig, LlamaForCausalLM
class Adapted(LlamaForCausalLM):
    def generate(self, inputs, hpu_graphs=False):
        return self(inputs).logits.shape
model = Adapted(LlamaConfig(**tiny_models._LLAMA)).eval()
hpu_magic.wrap(model.to("hpu"), train=False)
print(json.dumps(["generate" in vars(model), "forward" in vars(model),
                  model.config._attn_implementation]))
"""
    ) == [False, True, "sdpa"]
