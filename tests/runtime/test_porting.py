"""CUDA code is converted to code for Gaudi, and keeps its comments and layout."""

import ast

import pytest

import hpu_magic
from hpu_magic.errors import HPUError
from hpu_magic.runtime.porting import tables
from hpu_magic.runtime.porting.port import port

TRAINING = '''\
"""Trains on a GPU."""
import torch
from torch import nn  # layers
from torch.cuda.amp import autocast, GradScaler

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1).cuda()  # to the GPU
optimizer = torch.optim.SGD(
    model.parameters(),  # all of them
    lr=0.1,
)
scaler = GradScaler()
for x, y in loader:
    optimizer.zero_grad()
    with autocast():
        loss = nn.functional.mse_loss(
            model(x.to(device)),
            y.cuda(non_blocking=True),
        )
    scaler.scale(loss).backward()  # gradients
    scaler.step(optimizer)
    scaler.update()
    torch.cuda.empty_cache()
'''
LAZY_TRAINING = '''\
"""Trains on a GPU."""
import torch
import habana_frameworks.torch.core as htcore
from torch import nn  # layers
from torch.amp import autocast, GradScaler

device = torch.device("hpu" if torch.hpu.is_available() else "cpu")
model = nn.Linear(4, 1).to("hpu")  # to the GPU
optimizer = torch.optim.SGD(
    model.parameters(),  # all of them
    lr=0.1,
)
scaler = GradScaler("hpu")
for x, y in loader:
    optimizer.zero_grad()
    with autocast("hpu"):
        loss = nn.functional.mse_loss(
            model(x.to(device)),
            y.to("hpu", non_blocking=True),
        )
    scaler.scale(loss).backward()  # gradients
    htcore.mark_step()
    scaler.step(optimizer)
    htcore.mark_step()
    scaler.update()
'''


def test_training_loop_keeps_its_comments_and_layout():
    report = hpu_magic.from_cuda(TRAINING, mark_steps=True)
    assert report.ported == LAZY_TRAINING
    assert [(each.line, each.kind, each.text) for each in report.findings] == [
        (
            12,
            "remark",
            "the GradScaler is kept, but bfloat16, the card's native type, does not need it",
        ),
        (
            15,
            "remark",
            "without dtype, autocast computes in bfloat16 on the card and in float16 on a GPU",
        ),
        (
            23,
            "inactive",
            "torch.cuda.empty_cache has no counterpart and no effect: the memory pool is the whole "
            "card, so there is nothing to free",
        ),
    ]


def test_eager_mode_inserts_no_mark_step():
    eager = LAZY_TRAINING.replace("    htcore.mark_step()\n", "")
    assert hpu_magic.from_cuda(TRAINING, mark_steps=False).ported == eager


def test_porting_twice_changes_nothing():
    again = hpu_magic.from_cuda(LAZY_TRAINING, mark_steps=True)
    assert (again.ported, again.changed) == (LAZY_TRAINING, False)
    assert repr(again).startswith("Nothing to port to hpu (simulated GAUDI2)")


def test_executed_code_keeps_line_numbers():
    report = hpu_magic.from_cuda(TRAINING, mark_steps=True)
    lines = report.executed.splitlines()
    assert len(lines) == len(TRAINING.splitlines())
    assert lines[1] == "import torch; import habana_frameworks.torch.core as htcore"
    assert lines[19] == "    scaler.scale(loss).backward(); htcore.mark_step()  # gradients"
    assert lines[22] == "    pass"


@pytest.mark.parametrize(
    ("cuda", "hpu"),
    [
        ("x.cuda()", 'x.to("hpu")'),
        ("x.cuda(0)", 'x.to("hpu")'),
        ("x.cuda(rank, non_blocking=True)", 'x.to("hpu", non_blocking=True)'),
        ("x.cuda(device=rank, non_blocking=True)", 'x.to(device="hpu", non_blocking=True)'),
        ("x.cuda().float().cuda()", 'x.to("hpu").float().to("hpu")'),
        ("f(x.cuda(), [y.cuda()])", 'f(x.to("hpu"), [y.to("hpu")])'),
        ("x.to('cuda')", "x.to('hpu')"),
        ("x.to(u'cuda:1')", "x.to(u'hpu')"),
        ("x.to(f'cuda:{rank}')", "x.to('hpu')"),
        ("x.to('cuda:' + str(rank))", "x.to('hpu')"),
        ("x.to('cuda:%d' % rank)", "x.to('hpu')"),
        ("x.to('cuda:{}'.format(rank))", "x.to('hpu')"),
        ('torch.device("cuda", rank)', 'torch.device("hpu")'),
        ('device.type == "cuda"', 'device.type == "hpu"'),
        ("y = x.is_cuda", 'y = x.device.type == "hpu"'),
        ("assert not x.is_cuda", 'assert not x.device.type == "hpu"'),
        ("x.is_cuda == y.is_cuda", '(x.device.type == "hpu") == (y.device.type == "hpu")'),
        ("x.cuda().is_cuda", '(x.to("hpu").device.type == "hpu")'),
        ("torch.cuda.memory.memory_allocated()", "torch.hpu.memory_allocated()"),
        ("torch.cuda.reset_max_memory_allocated()", "torch.hpu.reset_peak_memory_stats()"),
        ("torch.cuda.CUDAGraph()", "torch.hpu.HPUGraph()"),
        ("torch.cuda.get_device_properties(0).total_memory", "torch.hpu.mem_get_info()[1]"),
        ("torch.cuda.get_device_properties(d).name", "torch.hpu.get_device_name()"),
        ("with torch.cuda.nvtx.range('a'): f()", "with torch.profiler.record_function('a'): f()"),
        ("[ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]",
         "[ProfilerActivity.CPU, torch.profiler.ProfilerActivity.HPU]"),
        ("backend = torch.cuda", "backend = torch.hpu"),
        ("x.type(torch.cuda.HalfTensor)", 'x.to("hpu", torch.float16)'),
        ("x.cuda().type('torch.cuda.LongTensor')", "x.to('hpu').to('hpu', torch.int64)"),
        ("x.type(torch.float16).type('torch.FloatTensor')",
         "x.type(torch.float16).type('torch.FloatTensor')"),
        ("torch.set_default_tensor_type('torch.cuda.FloatTensor')",
         "torch.set_default_device('hpu')"),
        ("with torch.cuda.device(1): f()", "with torch.hpu.device(0): f()"),
        ("with torch.cuda.device(x.device): f()", "with torch.hpu.device(x.device): f()"),
        ("with torch.cuda.graph(g, pool=p, stream=s): f()",
         "with torch.hpu.graph(g, stream=s): f()"),
        ("torch.cuda.amp.autocast()", 'torch.autocast("hpu")'),
        ("torch.cuda.amp.autocast(False, torch.half)",
         'torch.autocast("hpu", enabled=False, dtype=torch.half)'),
        ('torch.autocast("cuda", dtype=torch.half)', 'torch.autocast("hpu", dtype=torch.half)'),
        ("torch.amp.GradScaler()", 'torch.amp.GradScaler("hpu")'),
        ("torch.cuda.amp.GradScaler(1024.0)", 'torch.amp.GradScaler("hpu", 1024.0)'),
        ("@torch.cuda.amp.custom_fwd\ndef f(): pass",
         '@torch.amp.custom_fwd(device_type="hpu")\ndef f(): pass'),
        ("@torch.cuda.amp.custom_fwd(cast_inputs=t)\ndef f(): pass",
         '@torch.amp.custom_fwd(device_type="hpu", cast_inputs=t)\ndef f(): pass'),
        ("torch.compile(model)", 'torch.compile(model, backend="hpu_backend")'),
        ("torch.compile(model, backend='inductor')", "torch.compile(model, backend='hpu_backend')"),
        ("torch.compile(model, backend='eager')", "torch.compile(model, backend='eager')"),
        ("torch.compile(m, mode='a', dynamic=True)",
         "torch.compile(m, backend='hpu_backend', dynamic=True)"),
        ("torch.compile(m, options={}, mode='a')", "torch.compile(m, backend='hpu_backend')"),
        ("@torch.compile\ndef f(): pass", '@torch.compile(backend="hpu_backend")\ndef f(): pass'),
        ('dist.init_process_group("nccl")', 'dist.init_process_group("hccl")'),
        ('dist.init_process_group("cpu:gloo,cuda:nccl")',
         'dist.init_process_group("cpu:gloo,hpu:hccl")'),
        ("torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank], output_device=rank)",
         "torch.nn.parallel.DistributedDataParallel(m, device_ids=None, output_device=None)"),
        ("torch.load(p, map_location=lambda s, l: s.cuda(1))",
         'torch.load(p, map_location=lambda s, l: s.to(device="hpu"))'),
        ('Trainer(accelerator="gpu", devices=1)', 'Trainer(accelerator="hpu", devices=1)'),
        ('print(f"{torch.cuda.memory_allocated()} {x.cuda()}")',
         "print(f\"{torch.hpu.memory_allocated()} {x.to('hpu')}\")"),
        ("y = torch.cuda.memory_snapshot(\n) or 1", "y = [] or 1"),
        ("ä = 'ö'; x.cuda(0)  # ü", "ä = 'ö'; x.to('hpu')  # ü"),
        ("if a:\n    torch.cuda.empty_cache()", "if a:\n    pass"),
        ("print(1); torch.cuda.empty_cache()", "print(1); pass"),
        ('"""cuda"""', '"""cuda"""'),
        ("print('of cuda: 3', cuda, x.cudart)", "print('of cuda: 3', cuda, x.cudart)"),
    ],
)  # fmt: skip
def test_line_is_ported(cuda, hpu):
    # `known` contains the names that the ported code would otherwise import.
    known = {"htcore": None, "torch": __import__("torch")}
    report = port(cuda, mark_steps=False, variables=known)
    assert report.ported == f"{hpu}\n"
    ast.parse(report.executed)
    assert report.executed.count("\n") == report.original.count("\n")


@pytest.mark.parametrize(
    ("cuda", "hpu"),
    [
        ("from torch.cuda.amp import autocast as cast\ncast(True)",
         'from torch.amp import autocast as cast\ncast("hpu", enabled=True)'),
        ("from torch.cuda import CUDAGraph, Event, empty_cache as clear\nclear()\nf()",
         "from torch.hpu import HPUGraph as CUDAGraph, Event; "
         "from torch.cuda import empty_cache as clear\nf()"),
        ("from torch import cuda\nimport torch\ncuda.synchronize()",
         "from torch import cuda\nimport torch\ntorch.hpu.synchronize()"),
        ("import torch as t\nt.cuda.synchronize()",
         "import torch as t\nimport torch\ntorch.hpu.synchronize()"),
        ("from torch.cuda.amp import (\n    autocast,  # a\n)\nautocast()",
         'from torch.amp import autocast\nautocast("hpu")'),
    ],
)  # fmt: skip
def test_imports_and_their_uses_are_ported(cuda, hpu):
    report = port(cuda, mark_steps=False, variables={"htcore": None})
    assert report.ported == f"{hpu}\n"
    ast.parse(report.executed)
    assert report.executed.count("\n") == report.original.count("\n")


def test_names_of_earlier_cells_are_resolved(torch):
    variables = {
        "torch": torch,
        "t": torch,
        "autocast": torch.cuda.amp.autocast,
        "cuda": torch.cuda,
        "device": torch.device("cuda"),
        "trainer": torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1),
        "schedule": object(),
    }
    report = port(
        "with autocast():\n    x.to(device)\ncuda.synchronize()\nt.cuda.Event()\n"
        "loss.backward()\ntrainer.step()\nschedule.step()\n",
        mark_steps=True,
        variables=variables,
    )
    assert report.ported == (
        "import habana_frameworks.torch.core as htcore\n"
        'with torch.autocast("hpu"):\n    x.to(device)\n'
        "torch.hpu.synchronize()\ntorch.hpu.Event()\n"
        "loss.backward()\nhtcore.mark_step()\ntrainer.step()\nhtcore.mark_step()\nschedule.step()\n"
    )
    assert report.first == "import habana_frameworks.torch.core as htcore"
    assert "device was set to device(type='cuda') in another cell: port that cell" in repr(report)


def test_mark_step_is_inserted_once_after_backward_and_step():
    code = (
        "import habana_frameworks.torch.core as htcore\n"
        "for x in y: loss.backward()\n"
        "loss.backward()\nhtcore.mark_step()\n"
        "opt.step(); scheduler.step()\n"
        "sgd = torch.optim.SGD(p)\nsgd.step()  # now\n"
        "self.optimizer.step()\n"
    )
    assert hpu_magic.from_cuda(code, mark_steps=True).ported == (
        "import habana_frameworks.torch.core as htcore\n"
        "for x in y: loss.backward(); htcore.mark_step()\n"
        "loss.backward()\nhtcore.mark_step()\n"
        "opt.step(); htcore.mark_step(); scheduler.step()\n"
        "sgd = torch.optim.SGD(p)\nsgd.step()  # now\nhtcore.mark_step()\n"
        "self.optimizer.step()\nhtcore.mark_step()\n"
    )


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import triton.language as tl", "triton needs a GPU"),
        ("from flash_attn import flash_attn_func", "flash_attn needs a GPU: use habana"),
        ("from numba import cuda", "numba.cuda needs a GPU"),
        ("torch.utils.cpp_extension.load_inline('a', cuda_sources='')", "it compiles CUDA kernels"),
        ("torch.cuda.cudart()", "torch.cuda.cudart has no counterpart: it belongs to CUDA's"),
        ("p = torch.cuda.MemPool()", "torch.cuda.MemPool has no counterpart"),
    ],
)
def test_code_without_counterpart_is_reported_with_its_line(code, sentence):
    report = hpu_magic.from_cuda(f"x = 1\n{code}\n")
    assert [each.line for each in report.missing] == [2]
    assert f"Warning: Line 2: {report.missing[0].text}." in repr(report)
    assert sentence in repr(report)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("try:\n    import apex\nexcept ImportError:\n    apex = None", "apex needs a GPU"),
        ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark has no effect"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"', "HABANA_VISIBLE_MODULES chooses the cards"),
        ("model.half()", "prefer .bfloat16()"),
        (
            "x.cuda(*devices)",
            "cuda() with * unpacking is not ported: pass its arguments explicitly",
        ),
        (
            "x.cuda(**options)",
            "cuda() with * unpacking is not ported: pass its arguments explicitly",
        ),
        ("torch.cuda._sleep(3)", "torch.cuda._sleep is unknown and was not changed"),
        (
            "with torch.cuda.device(1): f()",
            "a process has only one card, so every number refers to hpu:0",
        ),
        (
            "torch.set_default_tensor_type(torch.cuda.HalfTensor)",
            "set_default_dtype(torch.float16)",
        ),
        ("torch.nn.DataParallel(model)", "torch.nn.DataParallel uses one card"),
        ("torch.cuda.memory_reserved()", "On Gaudi, it is the card's entire memory"),
        ("torch.autocast('cuda', dtype=torch.float16)", "float16 is kept, but bfloat16"),
    ],
)
def test_remark_is_shown_for_code_that_behaves_differently(code, sentence):
    report = hpu_magic.from_cuda(code)
    assert report.missing == ()
    assert sentence in repr(report)


def test_invalid_python_is_rejected_with_its_line():
    with pytest.raises(HPUError, match=r"^Line 2 is not valid Python \(.*\): correct it"):
        hpu_magic.from_cuda("x = 1\ny = (\n")


def test_report_shows_the_diff_as_text_and_html():
    report = hpu_magic.from_cuda("a = 1\nx = '<b>'\ny = f(x).cuda()\nb = 2\n")
    assert repr(report) == (
        "Ported to hpu (simulated GAUDI2): 1 line changed\n"
        "  2   x = '<b>'\n"
        "  3 - y = f(x).cuda()\n"
        "    + y = f(x).to('hpu')\n"
        "  4   b = 2"
    )
    page = report._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>&#x27;" not in page
    for piece in (">cuda</span>", ">to</span>", ">&#x27;hpu&#x27;</span>"):
        assert piece in page


def test_table_contains_every_public_name_of_torch_cuda(torch):
    def public(name):
        value = getattr(torch.cuda, name)
        return (
            not name.startswith("_")
            and callable(value)
            and str(getattr(value, "__module__", "")).startswith(("torch.cuda", "torch._C"))
        )

    names = {name for name in dir(torch.cuda) if public(name)}
    assert len(names) > 90
    assert names - set(tables.torch_cuda()) == set()


def test_replacements_in_the_table_exist(torch):
    for name, (action, text, why) in tables.torch_cuda().items():
        if "." not in name and not hasattr(torch.cuda, name):
            continue  # a name from another release
        assert action in ("name", "value", "none"), name
        if action == "name":
            target = torch
            for part in text.split(".")[1:]:
                target = getattr(target, part)
        else:
            assert why, name
        if action == "value":
            ast.literal_eval(text)
