"""Test %hpu_explain_autocast and hpu_magic.explain_autocast."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from IPython.core.error import UsageError

import hpu_magic
from hpu_magic.errors import HPUError

NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.blocks = nn.Sequential(*[Block() for _ in range(3)])
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
    def forward(self, words, scale):
        x = self.drop(self.norm(self.blocks(self.words(words))))
        x = torch.einsum("ij,kj->ik", x, x).mul_(scale)
        with torch.autocast("hpu", enabled=False):
            return torch.exp(x.float()).sum()

model = Net().to("hpu")
sample = torch.arange(4, device="hpu"), torch.ones(4, device="hpu")
"""


@pytest.fixture
def net(run: Any, torch: Any) -> None:
    """Define a model and a sample of its inputs in the user's namespace."""
    assert run(NET).error is None


@pytest.fixture
def compare(golden: Any) -> Any:
    """A function that compares the explanation of the model with the golden file."""
    return lambda explained: golden("explained_autocast", str(explained))


def test_each_operation_is_shown_with_its_type_and_the_reason(
    run: Any, net: None, compare: Any
) -> None:
    explained = run("explained = %hpu_explain_autocast model --inputs sample\nexplained").result
    compare(explained)
    assert sum(explained.operations.values()) == 1 + 3 * 5 + 6
    assert explained.conversions == 19


def test_lazy_mode_gives_the_same_explanation(forked_script: Any, compare: Any) -> None:
    printed = forked_script(
        NET + "import hpu_magic; print(hpu_magic.explain_autocast(model, sample), end='')",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    compare(printed)


def test_operator_lists_of_the_environment_are_used(
    forked_script: Any, tmp_path: Any, golden: Any
) -> None:
    lower, fp32 = tmp_path / "lower.txt", tmp_path / "fp32.txt"
    lower.write_text("gelu\n")
    fp32.write_text("linear\n")
    printed = forked_script(
        """
        import hpu_magic, torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Softmax(-1))
        model.to("hpu")
        print(hpu_magic.explain_autocast(model, torch.ones(2, 4, device="hpu"), dtype="fp16"))
        """,
        simulated=True,
        PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST=str(lower),
        PT_HPU_AUTOCAST_FP32_OPS_LIST=str(fp32),
    )
    golden("explained_autocast", printed, section="operator lists of the environment")


def test_model_and_random_state_are_unchanged(run: Any, net: None, torch: Any) -> None:
    before = run("{name: value.clone() for name, value in model.state_dict().items()}").result
    torch.manual_seed(0)
    expected = torch.rand(3, device="hpu").tolist()
    torch.manual_seed(0)
    run("%hpu_explain_autocast model --inputs sample")
    assert torch.rand(3, device="hpu").tolist() == expected
    after = run("model.state_dict()").result
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert run("model.training").result
    assert run("any(module._forward_hooks for module in model.modules())").result is False
    assert not torch.is_autocast_enabled("hpu")


def test_modules_share_a_row_only_if_their_operations_are_equal(run: Any, torch: Any) -> None:
    run(
        """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.pair = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
                self.gap = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
                self.twice = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            def forward(self, x):
                for layer in (*self.pair, self.gap, *self.twice, self.twice[1]):
                    x = layer(x)
                return x + x
        model, x = Net().to("hpu"), torch.ones(2, 4, device="hpu")
        """
    )
    explained = run("%hpu_explain_autocast model --inputs x").result
    assert [line[:2] for line in explained.lines()] == [
        ("pair.0-1 (Linear)", "linear"),
        ("gap.0 (Linear)", "linear"),
        ("gap.1 (ReLU)", "relu"),
        ("gap.2 (Linear)", "linear"),
        ("twice.0 (Linear)", "linear"),
        ("twice.1 (Linear)", "linear x2"),
        ("Net", "add"),
    ]


def test_numbers_that_form_no_range_have_separate_rows(run: Any, torch: Any) -> None:
    run(
        """
        import torch
        from torch import nn
        names = ["0", "00", "20240101", "29991231"]
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleDict({name: nn.Linear(4, 4) for name in names})
            def forward(self, x):
                return [part(x) for part in self.parts.values()]
        model, x = Net().to("hpu"), torch.ones(2, 4, device="hpu")
        """
    )
    explained = run("%hpu_explain_autocast model --inputs x").result
    assert [line[0] for line in explained.lines()] == [
        f"parts.{name} (Linear)" for name in ("0", "00", "20240101", "29991231")
    ]


def test_buffers_are_restored_after_any_kind_of_change(torch: Any) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.register_buffer("made", torch.zeros(1))
            self.register_buffer("written", torch.zeros(1))
            self.register_buffer("expanded", torch.ones(1).expand(3))
            with torch.inference_mode():
                self.register_buffer("inferred", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.made = self.made + 1
            self.written += 1
            with torch.inference_mode():
                self.inferred += 1
            return self.layer(x) * self.expanded.sum()

    model = Counting().to("hpu")
    model.expanded = model.expanded[:1].expand(3)
    before = dict(model.named_buffers())
    hpu_magic.explain_autocast(model, torch.ones(2, device="hpu"))
    after = dict(model.named_buffers())
    assert list(map(id, after.values())) == list(map(id, before.values()))
    values = {name: value.tolist() for name, value in after.items()}
    assert values == {"made": [0], "written": [0], "expanded": [1, 1, 1], "inferred": [0]}


def test_model_may_run_in_another_thread_meanwhile(net: None, shell: Any, compare: Any) -> None:
    model, sample = (shell.user_ns[name] for name in ("model", "sample"))
    ended = threading.Event()

    def run_model() -> None:
        while not ended.is_set():
            model(*sample)

    with ThreadPoolExecutor() as pool:
        other = pool.submit(run_model)
        for _ in range(3):
            compare(hpu_magic.explain_autocast(model, sample))
        ended.set()
        assert other.result() is None


def test_modules_that_ran_in_other_threads_are_listed_as_missing(torch: Any) -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.here, self.there = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                return self.here(x), pool.submit(self.there, x).result()

    explained = hpu_magic.explain_autocast(Halves().to("hpu"), torch.ones(2, 2, device="hpu"))
    assert {operation.module for operation in explained.operations} == {"here (Linear)"}
    assert explained.unseen == {"there (Linear)"}
    assert repr(explained).endswith(
        "These modules ran in other threads and are missing: there (Linear). Autocast affects only "
        "the thread that enters it."
    )


def test_model_keywords_may_have_the_names_of_options(torch: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any, *, dtype: Any, sample_keywords: int) -> Any:
            return (x @ x).to(dtype) * sample_keywords

    x = torch.ones(2, 2, device="hpu")
    keywords = {"dtype": torch.float64, "sample_keywords": 3}
    explained = hpu_magic.explain_autocast(Net(), (x, keywords))
    assert [(operation.name, operation.dtype) for operation in explained.operations] == [
        ("matmul", "bfloat16"),
        ("mul", "float64"),
    ]


def test_running_profile_is_not_interrupted(net: None, shell: Any, torch: Any) -> None:
    model, sample = (shell.user_ns[name] for name in ("model", "sample"))
    with torch.autograd.profiler.profile() as profile:
        model(*sample)
        with pytest.raises(HPUError, match="A profiler is already active"):
            hpu_magic.explain_autocast(model, sample)
        model(*sample)
    assert sum(event.name == "aten::exp" for event in profile.function_events) == 2


def test_reason_says_which_types_autocast_does_not_cast(torch: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            wide = x.double() @ x.double()
            return torch.vmap(lambda row: row @ x)(x), wide

    explained = hpu_magic.explain_autocast(Net(), torch.ones(2, 2, device="hpu"))
    lines = [tuple(line[1:]) for line in explained.lines()]
    assert lines[0] == ("matmul", "float64", "autocast does not cast float64")
    assert ("matmul", "float32", "lower-precision list") not in lines


def test_keyword_arguments_come_from_a_dict(run: Any, net: None, compare: Any) -> None:
    run("words, rest = sample[0], {'scale': sample[1]}")
    compare(run("%hpu_explain_autocast model --inputs words,rest").result)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "%hpu_explain_autocast needs model and --inputs x,y: type"),
        ("model", "%hpu_explain_autocast needs --inputs x,y: type"),
        ("modle --inputs sample", "Unknown variable 'modle': did you mean 'model'?"),
        ("sample --inputs sample", "Cannot explain an object of type tuple: pass"),
        ("host --inputs sample", "The model is on cpu: move it to the device first, with %hpu_to"),
        ("bare --inputs there", "The model ran no operations on floating-point device tensors"),
    ],
)
def test_wrong_line_is_rejected_with_one_sentence(
    run: Any, rejected: Any, net: None, line: str, sentence: str
) -> None:
    run("host, bare, there = nn.Linear(2, 2), nn.ReLU(), torch.ones(2)")
    assert rejected(f"%hpu_explain_autocast {line}").startswith(sentence)


def test_error_in_the_model_leaves_no_hook_and_no_profile(
    run: Any, net: None, compare: Any
) -> None:
    assert isinstance(run("%hpu_explain_autocast model --inputs words").error, UsageError)
    wrong = run(
        "wrong = torch.ones(3, 3, device='hpu')\n%hpu_explain_autocast model --inputs wrong,wrong"
    )
    assert not isinstance(wrong.error, UsageError | type(None))
    compare(run("%hpu_explain_autocast model --inputs sample").result)


def test_type_that_autocast_does_not_support_is_rejected(net: None, shell: Any) -> None:
    with pytest.raises(HPUError, match="Autocast cannot compute in float32"):
        hpu_magic.explain_autocast(shell.user_ns["model"], (), dtype="fp32")
