"""CUDA code is ported in any form: parentheses, continuation lines, strings, arguments."""

import ast

import pytest

import hpu_magic
from hpu_magic.runtime.porting.port import port


@pytest.mark.parametrize(
    ("cuda", "hpu"),
    [
        ("y = (a + b).is_cuda", 'y = (a + b).device.type == "hpu"'),
        ("y = (a\n     + b).is_cuda", 'y = (a\n     + b).device.type == "hpu"'),
        ("y = (x  # input\n     .is_cuda)", 'y = (x  # input\n     .device.type == "hpu")'),
        ("f = lambda: x.is_cuda", 'f = lambda: x.device.type == "hpu"'),
        ("def f(x): return x.is_cuda", 'def f(x): return x.device.type == "hpu"'),
        ("x.to('cuda' ':0')", "x.to('hpu')"),
        ("x.to(('cu'\n     'da'))", "x.to(('hpu'))"),
        (r"x.to('cud\x61')", "x.to('hpu')"),
        ("x.cuda(0, True)", 'x.to("hpu", non_blocking=True)'),
        ("x.cuda((0), (True), torch.preserve_format)",
         'x.to(("hpu"), non_blocking=(True), memory_format=torch.preserve_format)'),
        ("torch.device('cuda', index=rank)", "torch.device('hpu')"),
        ("torch.device(type='cuda', index=rank)", "torch.device(type='hpu')"),
        ("torch.cuda.set_device(2)", "torch.hpu.set_device(0)"),
        ("torch.cuda.set_device(device=2)", "torch.hpu.set_device(device=0)"),
        ("torch.cuda.set_device(local_rank)", "torch.hpu.set_device(local_rank)"),
        ("with torch.cuda.device(args.gpu): f()", "with torch.hpu.device(0): f()"),
        ("with torch.cuda.device(torch.device('cuda', 1)): f()",
         "with torch.hpu.device(torch.device('hpu')): f()"),
        ("torch.cuda.is_bf16_supported(including_emulation=False)",
         "torch.hpu.is_bf16_supported()"),
        ("torch.cuda.is_bf16_supported(\n    False,  # true cores only\n)",
         "torch.hpu.is_bf16_supported(\n    )"),
        ("torch.cuda.memory_summary(0, True)", "torch.hpu.memory_summary(0)"),
        ("torch.cuda.memory_summary(abbreviated=True, device=0)",
         "torch.hpu.memory_summary(device=0)"),
        ("torch.cuda.make_graphed_callables(m, (x,), num_warmup_iters=4, pool=p)",
         "torch.hpu.make_graphed_callables(m, (x,), warmups=4)"),
        ("torch.cuda.make_graphed_callables(m.cuda(), (x,), 4)",
         'torch.hpu.make_graphed_callables(m.to("hpu"), (x,), 4)'),
        ("with torch.cuda.graph(g, p, s): f()", "with torch.hpu.graph(g, stream=s): f()"),
        ("a, b = 1, 2\nwith torch.cuda.graph(pool=p, cuda_graph=g): f()",
         "a, b = 1, 2\nwith torch.hpu.graph(hpu_graph=g): f()"),
        ("torch.cuda.CUDAGraph(keep_graph=True)", "torch.hpu.HPUGraph()"),
        ("torch.compile((m))", 'torch.compile((m), backend="hpu_backend")'),
        ("torch.compile(m, mode=('a'))", "torch.compile(m, backend='hpu_backend')"),
        ("torch.compile(m, options={},  # fast, and\n    mode='a')",
         "torch.compile(m,  # fast, and\n    backend='hpu_backend')"),
        ("torch.compile(**options)", 'torch.compile(**options, backend="hpu_backend")'),
        ("m.compile(fullgraph=True)", 'm.compile(fullgraph=True, backend="hpu_backend")'),
        ("layer[0].cuda().compile(mode='a')", "layer[0].to('hpu').compile(backend='hpu_backend')"),
        ("model.compile()", 'model.compile(backend="hpu_backend")'),
        ("re.compile('a'); model.compile(optimizer='adam')",
         "re.compile('a'); model.compile(optimizer='adam')"),
        ("torch.cuda.empty_cache(\n); f()", "pass; f()"),
        ("print(f\"{x.cuda()} {f'{y.cuda()}'} {z.to('cuda')} {'cuda'}\")",
         "print(f\"{x.to('hpu')} {f'{y.cuda()}'} {z.to('hpu')} {'cuda'}\")"),
        ('f"""{x.cuda()} {f\'{y.cuda()}\'}"""', 'f"""{x.to("hpu")} {f\'{y.to("hpu")}\'}"""'),
        ("from torch.cuda.amp import (\n    autocast,  # a\n    GradScaler,\n); autocast()",
         'from torch.amp import autocast, GradScaler; autocast("hpu")'),
    ],
)  # fmt: skip
def test_every_spelling_is_ported(torch, cuda, hpu):
    known = {"htcore": None, "torch": torch, "model": torch.nn.Linear(1, 1)}
    report = port(cuda, mark_steps=False, variables=known)
    assert report.ported == f"{hpu}\n"
    executed = ast.unparse(ast.parse(report.executed)).replace("None", "pass")
    assert executed == ast.unparse(ast.parse(report.ported))
    assert report.executed.count("\n") == report.original.count("\n")


@pytest.mark.parametrize(
    "first",
    [
        "from torch.cuda import (\n    Event,\n    synchronize,\n)",
        "from torch.cuda import Event, \\\n    synchronize",
        '"""Doc."""\nfrom __future__ import annotations\nfrom torch.cuda import (Event,\n  stream)',
    ],
)
def test_habana_import_is_added_after_a_multi_line_import(first):
    report = hpu_magic.from_cuda(f"{first}\nEvent()\n", mark_steps=False)
    lines = report.executed.split("\n")
    assert len(lines) == len(report.original.split("\n"))
    assert lines[first.count("\n")].endswith("; import habana_frameworks.torch.core as htcore")
    names = [ast.unparse(each) for each in ast.parse(report.executed).body]
    assert names == [ast.unparse(each) for each in ast.parse(report.ported).body]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "from torch.cuda.amp import *",
            "names imported with * from torch.cuda.amp are not ported",
        ),
        ("with torch.cuda.amp.autocast(*a): f()", "autocast with * unpacking is not ported"),
        ("torch.cuda.memory_summary(*a)", "memory_summary with * unpacking is not ported"),
        ("cast = torch.cuda.amp.autocast", "autocast is not called here: call it with the device"),
        ("map(torch.Tensor.cuda, xs)", "torch.Tensor.cuda is not called here, so it is not ported"),
        ("t = {'torch.cuda.HalfTensor': 1}", "torch.cuda.HalfTensor in a string is not ported"),
        ("os.system('nvidia-smi -L')", "nvidia-smi does not support Gaudi: use hl-smi or %hpu"),
        ("net.compile()", 'add backend="hpu_backend" to compile()'),
        ("with torch.autograd.profiler.profile(use_cuda=True): f()", "use_cuda= records only GPUs"),
        ("try: f()\nexcept torch.cuda.OutOfMemoryError: g()", "The card raises RuntimeError"),
        ("try:\n    import apex\nexcept (OSError, ImportError): pass", "apex needs a GPU"),
        ("try:\n    import apex\nexcept: pass", "apex needs a GPU"),
        (
            "from contextlib import suppress\nwith suppress(ImportError):\n    import apex",
            "apex needs a GPU",
        ),
        ("print(f\"{f'{x.cuda()}'}\")", "in a magic or a formatted string is not ported"),
        ("torch.cuda.memory_stats()", "such as InUse, MaxInUse and Limit."),
    ],
)
def test_code_that_is_not_ported_is_reported(code, sentence):
    report = hpu_magic.from_cuda(code)
    assert report.missing == ()
    assert sentence in repr(report)


def test_import_in_an_except_block_is_not_optional():
    report = hpu_magic.from_cuda("try:\n    import a\nexcept ImportError:\n    import apex\n")
    assert [each.line for each in report.missing] == [4]
