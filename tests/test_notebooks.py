"""The notebooks about execution run as they are delivered and show what they say."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest
from executed_notebook import NOTEBOOKS, Executed, execute, source

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
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
}
NAMES = list(FIXTURES)
ALL = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("plain_loop", tmp_path_factory.mktemp("loop"))


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("execution_modes", tmp_path_factory.mktemp("modes"))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("hpu_graphs", tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def precision(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("mixed_precision", tmp_path_factory.mktemp("precision"))


@pytest.fixture(scope="module")
def fp8(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    if importlib.util.find_spec("neural_compressor") is None:
        pytest.skip("neural-compressor-pt is not installed; it needs Python 3.11")
    return execute("fp8", tmp_path_factory.mktemp("fp8"))


@pytest.fixture(scope="module")
def porting(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("porting_from_cuda", tmp_path_factory.mktemp("porting"))


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("lightning_features", tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return execute("multi_card", tmp_path_factory.mktemp("cards"))


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    for package in ("transformers", "peft"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return execute("fine_tune", tmp_path_factory.mktemp("tuning"))


@pytest.fixture(scope="module")
def generating(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    return execute("generate", tmp_path_factory.mktemp("generating"))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    return execute("before_the_card", tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize("name", ALL)
def test_source_carries_no_outputs(name: str) -> None:
    notebook = source(name)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)


# What brings more than its import says.
ALSO = {
    "%%hpu_workers": "ipyparallel",
    "%hpu_fp8_measure": "neural-compressor-pt",
    "TrainingArguments": "accelerate",
}


@pytest.mark.parametrize("name", ALL)
def test_first_lines_name_what_the_notebook_imports_and_how_to_install_it(name: str) -> None:
    first, *cells = source(name).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))
    distributions = packages_distributions()
    # Of triton the notebook shows that there is none; lightning_habana is a name of this project's.
    brought = {*sys.stdlib_module_names, "hpu_magic", "habana_frameworks", "numpy", "torch"}
    brought |= {"triton", "lightning_habana"} | set(re.findall(r"(\w+)\.py\b", code))
    needed = {distributions[one][0] for one in imported - brought}
    needed |= {package for word, package in ALSO.items() if word in code}
    needed.discard("pytorch-lightning")
    *_, told = first.source.splitlines()
    if not needed:
        assert told == "**Packages:** only hpu_magic and JupyterLab."
        return
    packages = sorted(needed)
    quickstart = " ".join(requirements.of_extras(requirements.described(), "quickstart"))
    target = "lab" if all(package in quickstart for package in packages) else "notebooks"
    them = "them" if len(packages) > 1 else "it"
    assert told == (
        f"**Packages:** {', '.join(packages)}. Install {them} with `make {target}` in a clone, "
        f"or with `%pip install {' '.join(packages)}`."
    )
    everything = " ".join(requirements.of_extras(requirements.described(), "notebooks"))
    assert [package for package in packages if package not in everything] == []


@pytest.mark.parametrize("name", ALL)
def test_every_step_is_explained_in_two_sentences(name: str) -> None:
    for cell in source(name).cells[1:]:
        if cell.cell_type == "markdown":
            heading, _, text = cell.source.partition("\n")
            assert heading.startswith("## ")
            assert text.count(".\n") + text.endswith(".") == 2, text


# What the libraries import that lies beside Neural Compressor, and what that says of itself.
OTHERS = r"torchao|register_constant|auto_accelerator"
EXPECTED = {
    "fine_tune": re.compile(OTHERS),
    "before_the_card": re.compile(OTHERS),
    # What the notebook shows, and the line that the warning is about.
    "generate": re.compile(OTHERS + r"|was called with inputs of 5 shapes|^  written = model"),
}


@pytest.mark.parametrize("name", NAMES)
def test_newcomer_meets_no_warnings(name: str, request: pytest.FixtureRequest) -> None:
    warnings = request.getfixturevalue(FIXTURES[name]).warnings()
    expected = EXPECTED.get(name)
    assert [line for line in warnings if expected is None or not expected.search(line)] == []


def test_a_plain_loop_has_one_panel_for_its_epochs(loop: Executed) -> None:
    assert "Loop finished on HPU 0 (simulated GAUDI2): 1 epoch in " in loop.text("watch")
    assert loop.text("result") == "finished 20\n"
    shown = loop.text("epochs")
    assert "Loop finished on HPU 0 (simulated GAUDI2): 12 epochs in " in shown
    assert shown.count("Loop ") == 1
    assert "Chart of accuracy: last val_accuracy " in shown
    accuracy = re.fullmatch(r"12 epochs: accuracy (\d+)% in the validation\n", loop.text("end"))
    assert accuracy is not None
    assert int(accuracy[1]) > 90


def test_modes_agree_and_compile_only_at_first(modes: Executed) -> None:
    table = {}
    for line in modes.text("compare").splitlines()[1:]:
        key, *figures = re.split(r"\s{2,}", line.strip())
        table[key] = [float(one) for figure in figures for one in figure.split()]
    eager, lazy, compiled = table["final loss"]
    assert eager == lazy
    assert compiled == pytest.approx(eager, abs=2e-3)
    assert table["compiled there"][1] >= 1
    assert table["compiled there"][2] >= 1
    assert table["compiled later"] == [0, 0, 0]


def test_graph_break_is_shown_with_its_line(modes: Executed) -> None:
    shown = modes.text("break")
    assert "2 graphs compiled" in shown
    assert "1 graph break (" in shown
    assert "broken.py, line 9" in shown


def test_only_new_shapes_compile(modes: Executed) -> None:
    assert re.search(r"\d graphs? compiled in", modes.text("same-first"))
    assert "nothing compiled" in modes.text("same-again")
    assert "8 graphs compiled" in modes.text("changing")
    assert modes.text("padding-costs") == "8 compilations before, 2 with padding\n"


def test_synchronizations_are_shown_with_their_line(modes: Executed) -> None:
    assert "5 host synchronizations (line 4)" in modes.text("reading")


def test_replay_gives_the_models_results_faster(graphs: Executed) -> None:
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
def test_refusals_name_the_cause(graphs: Executed, cell: str, sentence: str) -> None:
    assert sentence in graphs.text(cell)


@pytest.mark.parametrize("cell", ["read-mend", "dynamic-mend", "fallback-mend"])
def test_mended_cells_are_captured(graphs: Executed, cell: str) -> None:
    assert "was not captured" not in graphs.text(cell)
    assert "captured" in graphs.text(cell)


def test_training_with_graphs_learns(graphs: Executed) -> None:
    first, last = map(float, re.findall(r"\d+\.\d+", graphs.text("train")))
    assert last < 0.2 * first


def test_operations_run_in_the_types_that_the_lists_name(precision: Executed) -> None:
    assert precision.text("cell") == "scores: torch.bfloat16  weights: torch.float32\n"
    explained = precision.text("explain")
    assert "scaled_dot_product_attention  bfloat16  lower-precision list" in explained
    assert "embed (Embedding)                                 embedding" in explained
    assert "in float32   _log_softmax x1" in precision.text("verbose")
    assert precision.text("all-cell") == "torch.bfloat16"


def test_training_in_bfloat16_learns_as_in_float32(precision: Executed) -> None:
    lower, full, gradients = precision.text("train").splitlines()
    for line in (lower, full):
        first, last = map(float, re.findall(r"\d\.\d+", line))
        assert last < 0.02 * first
    assert gradients == "gradients: torch.float32"


def test_the_backward_pass_is_kept_in_less_memory(precision: Executed) -> None:
    full, mixed = (
        float(re.findall(r"peak +([\d.]+) MiB", precision.text(cell))[0])
        for cell in ("memory-full", "memory-mixed")
    )
    assert mixed < 0.6 * full


def test_a_sum_in_bfloat16_loses_what_is_small(precision: Executed) -> None:
    assert precision.text("trap") == "in torch.bfloat16: 0.500, in torch.float32: 0.999\n"


def test_lists_that_come_too_late_are_remembered(precision: Executed) -> None:
    assert "restart the kernel" in precision.text("lists")


def test_a_cell_for_cuda_trains_on_the_card(porting: Executed) -> None:
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


def test_what_has_no_counterpart_is_shown_with_its_line(porting: Executed) -> None:
    assert "Line 3: torch.cuda.empty_cache has no counterpart and no effect" in porting.text(
        "inactive"
    )
    assert "Warning: Line 2: triton needs a GPU" in porting.text("missing")
    assert "The cell did not run" in porting.text("missing")


def test_a_script_for_cuda_runs_as_it_is(porting: Executed) -> None:
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
def test_saved_notebook_stays_small(name: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(FIXTURES[name]).grown() < 100_000


def percent(text: str) -> float:
    return float(re.search(r"([\d.]+) ?%", text)[1])


def test_measuring_and_quantizing_keep_the_accuracy(fp8: Executed) -> None:
    assert "Net measured for fp8" in fp8.text("measure")
    assert len(fp8.text("files").splitlines()) == 4
    assert "4 layers, relative error of the output" in fp8.text("quantize")
    assert percent(fp8.text("train")) > 95
    assert percent(fp8.text("accuracy")) > percent(fp8.text("train")) - 2


def test_the_report_in_8_bits_has_a_picture(fp8: Executed) -> None:
    [cell] = [cell for cell in fp8.notebook.cells if cell.id == "quantize"]
    html = cell.outputs[0].data["text/html"]
    assert html.count("<rect") == 1 + 4  # the legend's, and one for each layer
    assert html.index("</table>") < html.index("<svg")


def test_scales_and_lists_change_the_error(fp8: Executed) -> None:
    rows = fp8.text("scales").split("\n")
    errors = [percent(row) for row in rows if row]
    assert len(errors) == 4
    assert errors[2] > 1.5 * errors[0]  # E5M2 has a bit less


def test_a_layer_that_is_none_and_a_second_step_are_refused(fp8: Executed) -> None:
    assert "'haed', but no module has it: did you mean 'head'?" in fp8.text("unknown")
    assert "which can do only one step" in fp8.text("other")


def test_training_in_8_bits_learns(fp8: Executed) -> None:
    first, last = map(float, re.findall(r"\d+\.\d+", fp8.text("training")))
    assert last < 0.5 * first


def test_each_feature_of_lightning_trains(features: Executed) -> None:
    def accuracies(cell_id: str) -> list[float]:
        return [float(one) for one in re.findall(r"accuracy\W+([\d.]+)", features.text(cell_id))]

    cells = {"fit": 2, "evaluate": 1, "precision": 3, "plugin": 1, "callbacks": 1, "checkpoint": 1}
    cells |= {"steps": 1, "manual": 1, "compile": 1}
    for cell_id, count in cells.items():
        found = accuracies(cell_id)
        assert len(found) == count, cell_id
        assert min(found) > 0.95, cell_id
    assert features.text("fit").endswith("same weights: True\n")
    assert "Linear from habana_frameworks" in features.text("plugin")
    assert float(re.findall(r"loss ([\d.]+) on hpu:0", features.text("fabric"))[0]) < 0.1


def test_features_show_what_they_say(features: Executed) -> None:
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
    refused = features.text("refused").splitlines()
    assert len(refused) == 4
    assert refused[0] == "devices=9 is not available: this machine has 8 cards."
    assert features.text("porting") == "hpu_magic.lightning 6 steps\n"


def test_four_cards_exchange_what_the_notebook_says(cards: Executed) -> None:
    ranks = "\n".join(f"rank {rank}\n  {rank} of 4, card {rank}" for rank in range(4))
    assert cards.text("ranks") == f"Starting 4 workers, one per card.\n\n{ranks}"
    # Where the machine is slow, the table of the ranks' cards follows.
    assert cards.text("collectives").partition("\n4 ranks\n")[0] == (
        "ranks 0 to 3\n  tensor([10., 10., 10.], device='hpu:0')\n"
        "  tensor([ 0., 10., 20., 30.], device='hpu:0')"
    )
    assert "Rank 2 is slowest" in cards.text("ddp")
    assert cards.text("held") == "['25%', '25%', '25%', '25%']"


def test_four_cards_learn_the_same_weights(cards: Executed) -> None:
    steps, same, right = cards.text("back").splitlines()
    assert steps == "steps of each rank: [120, 120, 120, 120]"
    assert same == "same weights: True"
    assert int(re.findall(r"\d+", right)[0]) >= 80


def test_a_failed_rank_leaves_the_others_usable(cards: Executed) -> None:
    assert (
        "Rank 1 raised ValueError: no pictures for rank 1. Ranks 0, 2 and 3 were interrupted."
        in (cards.text("error"))
    )
    assert cards.text("after") == "ranks 0 to 3\n  4.0"
    assert cards.text("show").count("idle") == 4
    assert cards.text("stop").startswith("Stopped 4 workers.")


def test_adapters_learn_what_the_model_cannot_read_and_leave_it_as_it_was(tuning: Executed) -> None:
    upright, strange = map(int, re.findall(r"(\d+)%", tuning.text("turned")))
    learnt, kept = map(int, re.findall(r"(\d+)%", tuning.text("keep")))
    assert strange < 30 < 60 < learnt
    assert upright == kept > 75
    adapters, model = map(int, re.findall(r"(\d+) KiB", tuning.text("keep")))
    assert adapters * 10 < model
    assert "Fit finished on HPU 0" in tuning.text("tune")
    assert "eval_accuracy" in tuning.text("tune")


def test_graphs_write_the_same_text_and_buckets_leave_nothing_to_compile(
    generating: Executed,
) -> None:
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


def test_choices_are_compared_before_there_is_a_card(before: Executed) -> None:
    assert "6.74 billion parameters\n" in before.text("model")
    full = before.text("full")
    assert full.startswith(
        "Estimate: training step of LlamaForCausalLM on gaudi2 (lazy mode, bf16, "
    )
    assert re.search(r"^ +weights +12\.6 GiB$", full, re.MULTILINE)
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


def test_adapters_and_eight_cards_take_less_of_each(before: Executed) -> None:
    assert before.text("lora").startswith("4.2 million of the parameters are trained\n")
    memory = dict(re.findall(r"^(\S+) +([\d.]+) / 94.6 GiB", before.text("cards"), re.MULTILINE))
    assert list(memory) == ["ddp", "zero3", "tp=8"]
    assert float(memory["zero3"]) < float(memory["ddp"])


def test_advice_is_what_its_change_gains(before: Executed) -> None:
    advice = before.text("advice")
    assert advice.startswith(
        "Advice for LlamaForCausalLM on gaudi2 (lazy mode, bf16, batch 4, adamw): "
    )
    gain = re.search(r"FP8 linear layers\n +gain +([\d.]+)x", advice)
    earlier, later = map(int, re.findall(r"(\d+) ms", before.text("applied")))
    assert gain is not None
    assert float(gain[1]) == pytest.approx(earlier / later, abs=0.02)


def test_batches_share_the_weights_of_generation(before: Executed) -> None:
    told = re.findall(r"([\d,]+) tokens/s, ([\d.]+) GiB", before.text("text"))
    (one, held), (many, more) = [(int(a.replace(",", "")), float(b)) for a, b in told]
    assert many > 10 * one
    assert more > held > 12.5
