"""The notebooks run, and their outputs match their texts."""

import importlib.util
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest
import torch
import vllm_program
from executed_notebook import COMPLETE, NOTEBOOKS, execute, source

from hpu_magic.parallel.output import named

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import requirements

FIXTURES = {
    "plain_loop": "loop",
    "execution_modes": "modes",
    "hpu_graphs": "graphs",
    "mixed_precision": "precision",
    "fp8": "fp8",
    "porting_from_cuda": "porting",
    "lightning_features": "features",
    "multi_card": "cards",
    "fine_tune": "tuning",
    "generate": "generating",
    "before_the_card": "before",
    "dry_run": "dry",
    "serve": "serving",
}

LAYERS = 32 if COMPLETE else 6  # of the language model in before_the_card


def notebook(name, *modules, **shorter):
    """Return a fixture that executes a notebook if the modules are installed.

    Its kernel is a fork of a process that has imported torch.
    """

    @pytest.fixture(scope="module")
    def executed(tmp_path_factory, forked_kernels):
        for module in modules:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")
        with forked_kernels():
            return execute(name, tmp_path_factory.mktemp(name), shorter)

    return executed


loop = notebook("plain_loop")
modes = notebook("execution_modes")
graphs = notebook("hpu_graphs")
precision = notebook("mixed_precision")
fp8 = notebook("fp8", "neural_compressor")
porting = notebook("porting_from_cuda")
features = notebook("lightning_features")
CARDS = 4 if COMPLETE else 2
cards = notebook(
    "multi_card",
    **{
        "--cards 4": f"--cards {CARDS}",
        "range(4)": f"range({CARDS})",
        "rank == 2": f"rank == {CARDS - 2 or 1}",
        "devices=4": f"devices={CARDS}",
        "(4,)": f"({CARDS},)",
    },
)
tuning = notebook(
    "fine_tune",
    "transformers",
    "peft",
    **{"arguments(8, 3e-3)": "arguments(4, 3e-3)", "arguments(6, 1e-2)": "arguments(3, 1e-2)"},
)
generating = notebook("generate", "transformers")
before = notebook(
    "before_the_card",
    "transformers",
    **{"LlamaConfig()": f"LlamaConfig(num_hidden_layers={LAYERS})"},
)
dry = notebook("dry_run")


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """The notebook with vLLM or, if it is not installed, with a program that has its interface."""
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("vllm") is None:
            site = tmp_path_factory.mktemp("vllm")
            vllm_program.install(site)
            patch.setenv("PYTHONPATH", str(site))
        return execute("serve", tmp_path_factory.mktemp("serve"))


NAMES = list(FIXTURES)
ALL = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", ALL)
def test_saved_notebooks_have_no_outputs(name):
    notebook = source(name)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)


# Packages required by commands and classes.
IMPLIED = {
    "%%hpu_workers": "ipyparallel",
    "%hpu_fp8_measure": "neural-compressor-pt",
    "TrainingArguments": "accelerate",
}


@pytest.mark.parametrize("name", ALL)
def test_introduction_lists_packages_and_their_installation(name):
    first, *cells = source(name).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))
    distributions = packages_distributions()
    # A notebook shows that triton is missing; hpu_magic provides lightning_habana.
    provided = {*sys.stdlib_module_names, "hpu_magic", "habana_frameworks", "numpy", "torch"}
    provided |= {"triton", "lightning_habana"} | set(re.findall(r"(\w+)\.py\b", code))
    needed = {distributions[each][0] for each in imported - provided}
    needed |= {package for word, package in IMPLIED.items() if word in code}
    needed.discard("pytorch-lightning")
    *_, packages_line = first.source.splitlines()
    if not needed:
        assert packages_line == "**Packages:** only hpu_magic and JupyterLab."
        return
    packages = sorted(needed)
    quickstart = " ".join(requirements.of_extras(requirements.described(), "quickstart"))
    target = "lab" if all(package in quickstart for package in packages) else "notebooks"
    them = "them" if len(packages) > 1 else "it"
    assert packages_line == (
        f"**Packages:** {', '.join(packages)}. Install {them} with `make {target}` in a clone, "
        f"or with `%pip install {' '.join(packages)}`."
    )
    everything = " ".join(requirements.of_extras(requirements.described(), "notebooks"))
    assert [package for package in packages if package not in everything] == []


@pytest.mark.parametrize("name", ALL)
def test_each_step_has_two_sentences(name):
    for cell in source(name).cells[1:]:
        if cell.cell_type == "markdown":
            heading, _, text = cell.source.partition("\n")
            assert heading.startswith("## ")
            assert text.count(".\n") + text.endswith(".") == 2, text


# Warnings about packages that Neural Compressor depends on.
IMPORT_WARNINGS = r"torchao|register_constant|auto_accelerator"
EXPECTED = {
    "fine_tune": re.compile(IMPORT_WARNINGS),
    "before_the_card": re.compile(IMPORT_WARNINGS),
    "serve": re.compile(IMPORT_WARNINGS),
    # A warning that the notebook shows, and the line that causes it.
    "generate": re.compile(
        IMPORT_WARNINGS + r"|was called with 5 different input shapes|^  written = model"
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_print_no_warnings(name, request):
    warnings = request.getfixturevalue(FIXTURES[name]).warnings()
    expected = EXPECTED.get(name)
    assert [line for line in warnings if expected is None or not expected.search(line)] == []


def test_plain_loop_shows_one_panel(loop):
    assert "Loop finished on HPU 0 (simulated GAUDI2): 1 epoch in " in loop.text("watch")
    assert loop.text("result") == "finished 20\n"
    shown = loop.text("epochs")
    assert "Loop finished on HPU 0 (simulated GAUDI2): 12 epochs in " in shown
    assert shown.count("Loop ") == 1
    assert "Chart of accuracy: last val_accuracy " in shown
    accuracy = re.fullmatch(r"12 epochs: accuracy (\d+)% in the validation\n", loop.text("end"))
    assert accuracy is not None
    assert int(accuracy[1]) > 90


def test_modes_have_equal_losses_and_compile_only_in_the_first_steps(modes):
    table = {}
    for line in modes.text("compare").splitlines()[1:]:
        key, *figures = re.split(r"\s{2,}", line.strip())
        table[key] = [float(each) for figure in figures for each in figure.split()]
    eager, lazy, compiled = table["final loss"]
    assert eager == lazy
    assert compiled == pytest.approx(eager, abs=2e-3)
    assert table["compiled there"][1] >= 1
    assert table["compiled there"][2] >= 1
    assert table["compiled later"] == [0, 0, 0]


def test_graph_break_is_shown_with_its_line(modes):
    shown = modes.text("break")
    assert "2 graphs compiled" in shown
    assert "1 graph break (" in shown
    assert "broken.py, line 9" in shown


def test_only_new_shapes_are_compiled(modes):
    assert re.search(r"\d graphs? compiled in", modes.text("same-first"))
    assert "nothing compiled" in modes.text("same-again")
    assert "8 graphs compiled" in modes.text("changing")
    assert modes.text("padding-costs") == "8 compilations before, 2 with padding\n"


def test_host_synchronizations_are_shown_with_their_line(modes):
    assert "5 host synchronizations (line 4)" in modes.text("reading")


def test_replay_returns_the_same_results_faster(graphs):
    assert graphs.text("check") == "as the model computes it: True\nas before: False\n"
    assert float(graphs.text("speed").split()[0]) > 1
    assert "memory change  0 B" in graphs.text("replay")


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("shape", "has shape (2, 16), but was captured with shape (4, 16)"),
        ("read", "average = y.mean().item()"),
        ("dynamic", "total = y[y > 0].sum()"),
        ("fallback", "operation  aten::renorm"),
    ],
)
def test_failed_captures_name_the_cause(graphs, cell, sentence):
    assert sentence in graphs.text(cell)


@pytest.mark.parametrize("cell", ["read-fix", "dynamic-fix", "fallback-fix"])
def test_fixed_cells_are_captured(graphs, cell):
    assert "was not captured" not in graphs.text(cell)
    assert "captured" in graphs.text(cell)


def test_training_with_graphs_reduces_the_loss(graphs):
    first, last = map(float, re.findall(r"\d+\.\d+", graphs.text("train")))
    assert last < 0.2 * first


def test_autocast_lists_determine_dtypes(precision):
    assert precision.text("cell") == "scores: torch.bfloat16  weights: torch.float32\n"
    explained = precision.text("explain")
    assert "scaled_dot_product_attention  bfloat16  lower-precision list" in explained
    assert "embed (Embedding)                                 embedding" in explained
    assert "in float32   _log_softmax x1" in precision.text("verbose")
    assert precision.text("all-cell") == "torch.bfloat16"


def test_bfloat16_training_reduces_the_loss_like_float32(precision):
    lower, full, gradients = precision.text("train").splitlines()
    for line in (lower, full):
        first, last = map(float, re.findall(r"\d\.\d+", line))
        assert last < 0.02 * first
    assert gradients == "gradients: torch.float32"


def test_autocast_reduces_the_memory_of_the_backward_pass(precision):
    full, mixed = (
        float(re.findall(r"peak +([\d.]+) MiB", precision.text(cell))[0])
        for cell in ("memory-full", "memory-mixed")
    )
    assert mixed < 0.6 * full


def test_sum_in_bfloat16_loses_small_values(precision):
    assert precision.text("trap") == "in torch.bfloat16: 0.500, in torch.float32: 0.999\n"


def test_late_autocast_lists_require_a_restart(precision):
    assert "restart the kernel" in precision.text("lists")


def test_cuda_cell_trains_on_the_device(porting):
    shown = porting.text("port")
    assert (
        "  11 - model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()"
        in shown
    )
    assert '.to("hpu")\n  12   optimizer' in shown
    [(first, last)] = re.findall(r"loss ([\d.]+) -> ([\d.]+) on hpu:0", shown)
    assert float(last) < 0.5 * float(first)
    assert int(re.findall(r"'(\d+)% right'", porting.text("later"))[0]) > 90
    assert porting.text("lazy").count("htcore.mark_step()") == 2
    assert porting.text("text") == (
        'from torch.amp import autocast\nx = torch.ones(2).to("hpu")  # two of them\n'
    )


def test_code_without_counterpart_is_shown_with_its_line(porting):
    assert "Line 3: torch.cuda.empty_cache has no counterpart and no effect" in porting.text(
        "inactive"
    )
    assert "Warning: Line 2: triton needs a GPU" in porting.text("missing")
    assert "The cell did not run" in porting.text("missing")


def test_cuda_script_runs_unchanged(porting):
    [loss] = re.findall(r"^loss ([\d.]+) on GAUDI2, is_cuda True$", porting.text("run"), re.M)
    assert float(loss) < 1
    kinds = re.findall(r"^\[(\w+)\]: ([\w.]+)\(", porting.text("log"), re.M)
    assert kinds == [
        ("hpu_match", "torch.cuda.is_available"),
        ("hpu_match", "torch.nn.Module.cuda"),
        ("hpu_match", "torch.amp.GradScaler"),
        ("hpu_match", "torch.randn"),
        ("hpu_match", "torch.autocast"),
        ("hpu_mismatch", "torch.cuda.empty_cache"),
        ("hpu_match", "torch.cuda.get_device_name"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_executed_notebook_is_small(name, request):
    assert request.getfixturevalue(FIXTURES[name]).grown() < 100_000


def percent(text):
    return float(re.search(r"([\d.]+) ?%", text)[1])


def test_quantized_model_keeps_the_accuracy(fp8):
    assert "Net measured for fp8" in fp8.text("measure")

    assert "4 layers, relative output error" in fp8.text("quantize")
    assert percent(fp8.text("train")) > 95
    assert percent(fp8.text("accuracy")) > percent(fp8.text("train")) - 2


def test_fp8_report_has_a_picture(fp8):
    [cell] = [cell for cell in fp8.notebook.cells if cell.id == "quantize"]
    html = cell.outputs[0].data["text/html"]
    assert html.count("<rect") == 1 + 4  # one for the legend and one per layer
    assert html.index("</table>") < html.index("<svg")


def test_scales_and_formats_change_the_error(fp8):
    rows = fp8.text("scales").split("\n")
    errors = [percent(row) for row in rows if row]
    assert len(errors) == 4
    assert errors[2] > 1.5 * errors[0]  # E5M2 has a shorter mantissa


def test_unknown_layer_and_second_step_are_refused(fp8):
    assert "but no module matches it: did you mean 'head'?" in fp8.text("unknown")
    assert "a process can run only one step" in fp8.text("other")


def test_fp8_training_reduces_the_loss(fp8):
    first, last = map(float, re.findall(r"\d+\.\d+", fp8.text("training")))
    assert last < 0.5 * first


def test_each_lightning_feature_trains(features):
    def accuracies(cell_id):
        return [float(each) for each in re.findall(r"accuracy\W+([\d.]+)", features.text(cell_id))]

    cells = {"fit": 2, "evaluate": 1, "precision": 3, "plugin": 1, "callbacks": 1, "checkpoint": 1}
    cells |= {"steps": 1, "manual": 1, "compile": 1}
    for cell_id, count in cells.items():
        found = accuracies(cell_id)
        assert len(found) == count, cell_id
        assert min(found) > 0.95, cell_id
    assert features.text("fit").endswith("same weights: True\n")
    assert "Linear from habana_frameworks" in features.text("plugin")
    assert float(re.findall(r"loss ([\d.]+) on hpu:0", features.text("fabric"))[0]) < 0.1


def test_lightning_features_match_their_texts(features):
    stopped, best = map(
        int, re.findall(r"after (\d+) .*epoch=(\d+)", features.text("callbacks"))[0]
    )
    assert best < stopped < 60
    assert f"{{'cpu'}} after epoch {best}\n" in features.text("checkpoint")
    assert f"resumed on hpu up to epoch {best + 3}\n" in features.text("checkpoint")
    assert re.search(r"^Limit +103079215104$", features.text("stats"), re.M)
    assert "aten::copy_" in features.text("profiler")
    assert features.text("profiler").endswith("1 trace\n")
    assert features.text("cli") == "['HPUAccelerator', 'SingleHPUStrategy', 'HPUPrecisionPlugin']\n"
    assert "devices=9 was requested, but this machine has 8 cards." in features.text("refused")
    assert features.text("porting") == "hpu_magic.lightning 6 steps\n"


def test_collectives_return_the_described_tensors(cards):
    ranks = "\n".join(f"rank {rank}\n  {rank} of {CARDS}, card {rank}" for rank in range(CARDS))
    assert cards.text("ranks") == f"Starting {CARDS} workers, one per card.\n\n{ranks}"
    summed = torch.full((3,), sum(range(1, CARDS + 1)), dtype=torch.float32)
    gathered = torch.arange(CARDS) * 10.0
    # On a slow machine, the table of ranks follows.
    assert cards.text("collectives").partition(f"\n{CARDS} ranks\n")[0] == (
        f"{named(range(CARDS))}\n  {str(summed)[:-1]}, device='hpu:0')\n"
        f"  {str(gathered)[:-1]}, device='hpu:0')"
    )
    assert f"Rank {CARDS - 2 or 1} is the slowest" in cards.text("ddp")
    assert cards.text("held") == str([f"{1 / CARDS:.0%}"] * CARDS)


def test_four_cards_train_equal_weights(cards):
    steps, same, right = cards.text("back").splitlines()
    assert steps == f"steps of each rank: {[8 * 1500 // 25 // CARDS] * CARDS}"
    assert same == "same weights: True"
    assert int(re.findall(r"\d+", right)[0]) >= 80


def test_other_ranks_work_after_a_failed_rank(cards):
    others = "Ranks 0, 2 and 3 were" if COMPLETE else "Rank 0 was"
    error = f"Rank 1 raised ValueError: no pictures for rank 1. {others} interrupted."
    assert error in cards.text("error")
    assert cards.text("after") == f"{named(range(CARDS))}\n  {CARDS:.1f}"
    assert cards.text("show").count("idle") == CARDS
    assert cards.text("stop").startswith(f"Stopped {CARDS} workers.")


def test_adapters_learn_a_new_task_and_keep_the_model(tuning):
    upright, strange = map(int, re.findall(r"(\d+)%", tuning.text("turned")))
    learnt, kept = map(int, re.findall(r"(\d+)%", tuning.text("keep")))
    if COMPLETE:
        assert strange < 30 < 60 < learnt
        assert upright > 75
    assert strange < learnt
    assert strange < upright == kept
    adapters, model = map(int, re.findall(r"(\d+) KiB", tuning.text("keep")))
    assert adapters * 10 < model
    assert "Fit finished on HPU 0" in tuning.text("tune")
    assert "eval_accuracy" in tuning.text("tune")


def test_generation_with_graphs_has_equal_text_and_buckets_avoid_compilation(generating):
    assert ", 0 graphs compiled" in generating.text("eager")
    assert int(re.search(r"(\d+) graphs compiled", generating.text("lazy"))[1]) > 16
    assert "the same text: True" in generating.text("graphs")
    assert re.search(r"1[56] graph replays", generating.text("again"))
    assert "graphs compiled" not in generating.text("time")
    assert "pad the inputs in dimension 1 to multiples of 16" in generating.text("lengths")
    compilations = [
        int(re.search(r"four more lengths: (\d+) compilations", generating.text(cell))[1])
        for cell in ("lengths", "any")
    ]
    assert compilations[0] > 4
    assert compilations[1] == 0
    assert "the same texts: True" in generating.text("any")


WEIGHTS = 2 * 32_000 * 4096 + LAYERS * (4 * 4096**2 + 3 * 4096 * 11_008)  # without the norms


def test_estimates_compare_choices(before):
    assert f"{WEIGHTS / 1e9:.2f} billion parameters\n" in before.text("model")
    full = before.text("full")
    assert full.startswith(
        "Estimate: training step of LlamaForCausalLM on gaudi2 (lazy mode, bf16, "
    )
    assert re.search(rf"^ +weights +{WEIGHTS / 2**29:.3g} GiB$", full, re.MULTILINE)
    table = {
        name: (float(memory), int(tokens.replace(",", "")), fits)
        for name, memory, tokens, fits in re.findall(
            r"^(\S.*?) +([\d.]+) GiB +([\d,]+) .* to [\d,]+(.*)$",
            before.text("choices"),
            re.MULTILINE,
        )
    }
    plain, again = table["as above"], table["recomputed layers"]
    assert again[0] < plain[0]
    assert again[1] < plain[1] < table["on Gaudi3"][1]
    assert table["operation by operation"][1] < plain[1]
    assert [fits for _, _, fits in table.values()] == [""] * 5
    texts, used = re.match(
        r"(\d+) texts per step: ([\d.]+) / 94.6 GiB", before.text("batch")
    ).groups()
    assert int(texts) > 4
    assert 90 < float(used) <= 94.6


def test_adapters_and_sharding_reduce_the_memory_per_card(before):
    adapters = LAYERS * 2 * 2 * 8 * 4096 / 1e6
    assert before.text("lora").startswith(f"{adapters:.1f} million of the parameters are trained\n")
    memory = dict(re.findall(r"^(\S+) +([\d.]+) / 94.6 GiB", before.text("cards"), re.MULTILINE))
    assert list(memory) == ["ddp", "zero3", "tp=8"]
    assert float(memory["zero3"]) < float(memory["ddp"])


def test_gain_of_the_advice_equals_the_estimated_change(before):
    advice = before.text("advice")
    assert advice.startswith(
        "Advice for LlamaForCausalLM on gaudi2 (lazy mode, bf16, batch 4, adamw): "
    )
    gain = re.search(r"FP8 linear layers\n +gain +([\d.]+)x", advice)
    earlier, later = map(int, re.findall(r"(\d+) ms", before.text("applied")))
    assert gain is not None
    assert float(gain[1]) == pytest.approx(earlier / later, abs=0.02)


def test_batched_generation_has_a_higher_rate(before):
    rates = re.findall(r"([\d,]+) tokens/s, ([\d.]+) GiB", before.text("text"))
    (single, memory), (batched, more) = [(int(a.replace(",", "")), float(b)) for a, b in rates]
    assert batched > 10 * single
    assert more > memory > WEIGHTS / 2**29 - 0.05


def test_served_model_answers_until_it_is_stopped(serving):
    assert "tiny_llama is ready at http://127.0.0.1:" in serving.text("serve")
    assert "The server was stopped." in serving.text("serve")
    assert "tokens: 16" in serving.text("ask")
    assert serving.text("chat") == "role: assistant\n"
    assert serving.text("many") == "16 answers, 1 text\n"
    assert serving.text("state").startswith("finished: 18\n")
    assert serving.text("stop").startswith("No server is running.")


def test_dry_runs_show_what_fits(dry):
    full, fits = dry.text("full"), dry.text("fits")
    assert "it runs out of memory" in full
    assert "hidden = layer(hidden)" in full
    assert "it fits" in fits
    assert "time of a step" in fits
    peaks = re.findall(r"(\d+) cards: ([\d.]+) of 96 GiB", dry.text("cards"))
    assert [cards for cards, _ in peaks] == ["8", "64"]
    assert float(peaks[0][1]) > float(peaks[1][1])
    steps = re.findall(r"([\d.]+) s per step \(estimate\), ([\d.]+) s for", dry.text("cards"))
    assert len(steps) == 2
    assert all(float(step) > float(exchange) > 0 for step, exchange in steps)


def test_dry_run_shows_the_cost_of_a_slow_loader(dry):
    text = dry.text("loader")
    step, load = re.search(r"([\d.]+) s per step \(estimate\), ([\d.]+) s to load", text).groups()
    assert float(step) > 0
    assert float(load) >= 0.4
    assert "Load batches in worker processes" in text
