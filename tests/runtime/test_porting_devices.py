"""A text becomes the card's name only if it reaches what takes a device; other text stays."""

from __future__ import annotations

import ast

import pytest

import hpu_magic

NOWHERE = "reaches nothing that takes a device, and stays"
MORE = "is more than the name of a device, and stays"
SAVED = "names a device in a saved file, and stays"
SEVERAL = (
    "is used as other text too, where several devices would become one: it stays, use another "
    "text there"
)


def ported(code, **variables):
    known = {"htcore": None, "torch": __import__("torch"), **variables}
    report = hpu_magic.port(code, mark_steps=False, variables=known)
    assert ast.unparse(ast.parse(report.executed)) == ast.unparse(ast.parse(report.ported))
    return report


@pytest.mark.parametrize(
    ("cuda", "hpu"),
    [
        # What takes a device
        ("x.to(device='cuda:0')", "x.to(device='hpu')"),
        ("torch.ones(2, device='cuda')", "torch.ones(2, device='hpu')"),
        ("torch.load(p, 'cuda')", "torch.load(p, 'hpu')"),
        ("torch.load(p, map_location='cuda:0')", "torch.load(p, map_location='hpu')"),
        ("torch.load(p, map_location=f'cuda:{rank}')", "torch.load(p, map_location='hpu')"),
        ("torch.set_default_device('cuda')", "torch.set_default_device('hpu')"),
        ("torch.cuda.set_device('cuda:1')", "torch.hpu.set_device('hpu')"),
        ("torch.cuda.synchronize('cuda:0')", "torch.hpu.synchronize('hpu')"),
        ("torch.amp.GradScaler('cuda')", "torch.amp.GradScaler('hpu')"),
        ("torch.autocast(device_type='cuda')", "torch.autocast(device_type='hpu')"),
        ("with autocast('cuda'): f()", "with autocast('hpu'): f()"),
        ("torch.Generator('cuda')", "torch.Generator('hpu')"),
        ("torch.nn.Linear(2, 2, True, 'cuda')", "torch.nn.Linear(2, 2, True, 'hpu')"),
        ("with torch.device('cuda'): f()", "with torch.device('hpu'): f()"),
        ("pipeline('text', device='cuda:0')", "pipeline('text', device='hpu')"),
        ("load(m, device_map={'': 'cuda:0'})", "load(m, device_map={'': 'hpu'})"),
        ("send_to_device(x, 'cuda')", "send_to_device(x, 'hpu')"),
        ("Trainer(accelerator='cuda')", "Trainer(accelerator='hpu')"),
        ("dist.init_process_group(backend='nccl')", "dist.init_process_group(backend='hccl')"),
        ("b = 'nccl' if cuda else 'gloo'\ndist.init_process_group(b)",
         "b = 'hccl' if cuda else 'gloo'\ndist.init_process_group(b)"),
        ("p.add_argument('--device', default='cuda', choices=['cpu', 'cuda'])",
         "p.add_argument('--device', default='hpu', choices=['cpu', 'hpu'])"),
        ("args = p.parse_args(['--device', 'cuda'])", "args = p.parse_args(['--device', 'hpu'])"),
        ("settings.get('device', 'cuda')", "settings.get('device', 'hpu')"),
        ("os.environ.get('DEVICE', 'cuda')", "os.environ.get('DEVICE', 'hpu')"),
        ("getattr(args, 'device', 'cuda')", "getattr(args, 'device', 'hpu')"),
        ("config['device'] = 'cuda'", "config['device'] = 'hpu'"),
        ("config = {'device': 'cuda', 'name': 'a'}", "config = {'device': 'hpu', 'name': 'a'}"),
        ("dict(device='cuda')", "dict(device='hpu')"),
        # Through variables
        ("kind = 'cuda'\nx.to(kind)", "kind = 'hpu'\nx.to(kind)"),
        ("a = b = 'cuda:0'\nc = b\nx.to(c)", "a = b = 'hpu'\nc = b\nx.to(c)"),
        ("a, n = 'cuda', 3\nx.to(a)", "a, n = 'hpu', 3\nx.to(a)"),
        ("if (kind := 'cuda'): x.to(kind)", "if (kind := 'hpu'): x.to(kind)"),
        ("place = f'cuda:{rank}'\nx.to(place)", "place = 'hpu'\nx.to(place)"),
        ("place = 'cuda' + ':' + str(rank)\nx.to(place)", "place = 'hpu'\nx.to(place)"),
        ("kind = 'cuda'\nx.to(f'{kind}:0')", "kind = 'hpu'\nx.to(f'{kind}:0')"),
        ("kind = 'cuda' if torch.cuda.is_available() else 'cpu'",
         "kind = 'hpu' if torch.hpu.is_available() else 'cpu'"),
        ("kind = 'cuda' if a else 'mps' if b else 'cpu'\nx.to(kind)",
         "kind = 'hpu' if a else 'mps' if b else 'cpu'\nx.to(kind)"),
        ("if a:\n    kind = 'cuda'\nelse:\n    kind = 'cpu'",
         "if a:\n    kind = 'hpu'\nelse:\n    kind = 'cpu'"),
        ("x.to(args.kind or 'cuda')", "x.to(args.kind or 'hpu')"),
        ("device = 'cuda'\nprint(f'on {device}')", "device = 'hpu'\nprint(f'on {device}')"),
        ("DEVICE: str = 'cuda:0'", "DEVICE: str = 'hpu'"),
        ("device = torch.device(f'cuda:{rank}')\nmodel.to(device)",
         "device = torch.device('hpu')\nmodel.to(device)"),
        # Through functions and classes
        ("def f(x, kind='cuda'): return x.to(kind)", "def f(x, kind='hpu'): return x.to(kind)"),
        ("def f(x, *, kind='cuda'): return x.to(kind)",
         "def f(x, *, kind='hpu'): return x.to(kind)"),
        ("def f(x, kind): return x.to(kind)\nf(y, 'cuda')",
         "def f(x, kind): return x.to(kind)\nf(y, 'hpu')"),
        ("def f(x, kind): return x.to(kind)\nf(kind='cuda', x=y)",
         "def f(x, kind): return x.to(kind)\nf(kind='hpu', x=y)"),
        ("f = lambda x, kind: x.to(kind)\nf(y, 'cuda')",
         "f = lambda x, kind: x.to(kind)\nf(y, 'hpu')"),
        ("def pick(): return 'cuda'\nx.to(pick())", "def pick(): return 'hpu'\nx.to(pick())"),
        ("def get_device(): return 'cuda'", "def get_device(): return 'hpu'"),
        ("class A:\n    def __init__(self): self.kind = 'cuda'\n"
         "    def go(self, x): return x.to(self.kind)",
         "class A:\n    def __init__(self): self.kind = 'hpu'\n"
         "    def go(self, x): return x.to(self.kind)"),
        ("class A:\n    def __init__(self, kind): self.kind = kind\n"
         "    def go(self, x): return x.to(self.kind)\nA('cuda')",
         "class A:\n    def __init__(self, kind): self.kind = kind\n"
         "    def go(self, x): return x.to(self.kind)\nA('hpu')"),
        ("class C:\n    kind = 'cuda'\nx.to(C.kind)", "class C:\n    kind = 'hpu'\nx.to(C.kind)"),
        ("class C:\n    kind: str = 'cpu'\nc = C(kind='cuda')\nx.to(c.kind)",
         "class C:\n    kind: str = 'cpu'\nc = C(kind='hpu')\nx.to(c.kind)"),
        ("class A:\n    @property\n    def kind(self): return 'cuda'\n"
         "    def go(self, x): return x.to(self.kind)",
         "class A:\n    @property\n    def kind(self): return 'hpu'\n"
         "    def go(self, x): return x.to(self.kind)"),
        # Through containers
        ("kinds = ['cpu', 'cuda']\nfor k in kinds: x.to(k)",
         "kinds = ['cpu', 'hpu']\nfor k in kinds: x.to(k)"),
        ("for i, k in enumerate(['cpu', 'cuda']): x.to(k)",
         "for i, k in enumerate(['cpu', 'hpu']): x.to(k)"),
        ("[x.to(k) for k in ('cpu', 'cuda')]", "[x.to(k) for k in ('cpu', 'hpu')]"),
        ("places = {'a': 'cuda:0', 'b': 'cuda:1'}\nx.to(places['a'])",
         "places = {'a': 'hpu', 'b': 'hpu'}\nx.to(places['a'])"),
        ("for n, k in {'a': 'cuda'}.items(): x.to(k)", "for n, k in {'a': 'hpu'}.items(): x.to(k)"),
        ("ks = []\nks.append('cuda')\nx.to(ks[0])", "ks = []\nks.append('hpu')\nx.to(ks[0])"),
        # Comparisons
        ("if x.device.type in ('cuda', 'mps'): f()", "if x.device.type in ('hpu', 'mps'): f()"),
        ("if str(x.device).startswith('cuda'): f()", "if str(x.device).startswith('hpu'): f()"),
        ("if 'cuda' in str(x.device): f()", "if 'hpu' in str(x.device): f()"),
        ("if str(x.device) == 'cuda:0': f()", "if str(x.device) == 'hpu:0': f()"),
        ("if x.device == torch.device('cuda:0'): f()", "if x.device == torch.device('hpu:0'): f()"),
        ("if x.device == torch.device('cuda', 0): f()",
         "if x.device == torch.device('hpu', 0): f()"),
        ("d = torch.device(f'cuda:{rank}')\nassert x.device == d",
         "d = torch.device('hpu:0')\nassert x.device == d"),
        ("kind = x.device.type\nif kind == 'cuda': f()",
         "kind = x.device.type\nif kind == 'hpu': f()"),
        ("def f(kind):\n    if kind == 'cuda': g()\n    x.to(kind)",
         "def f(kind):\n    if kind == 'hpu': g()\n    x.to(kind)"),
        ("if args.device == 'cuda': f()", "if args.device == 'hpu': f()"),
        ("kind = 'cuda'\nx.to(kind)\nif kind == 'cuda': f()",
         "kind = 'hpu'\nx.to(kind)\nif kind == 'hpu': f()"),
        ("size = {'cuda': 64, 'cpu': 8}[x.device.type]",
         "size = {'hpu': 64, 'cpu': 8}[x.device.type]"),
        ("sizes = {'cuda': 64, 'cpu': 8}\ndevice = 'cuda'\nsize = sizes[device]",
         "sizes = {'hpu': 64, 'cpu': 8}\ndevice = 'hpu'\nsize = sizes[device]"),
        ("match x.device.type:\n    case 'cuda' | 'mps': f()",
         "match x.device.type:\n    case 'hpu' | 'mps': f()"),
        ("self.assertEqual(x.device.type, 'cuda')", "self.assertEqual(x.device.type, 'hpu')"),
        ("d, kind = f'cuda:{rank}', 'cuda:0'\nx.to(d)\ny.to(kind)\nopen(f'{kind}.txt')",
         "d, kind = 'hpu', 'hpu'\nx.to(d)\ny.to(kind)\nopen(f'{kind}.txt')"),
        ("if dist.get_backend() == 'nccl': f()", "if dist.get_backend() == 'hccl': f()"),
    ],
)  # fmt: skip
def test_a_text_that_reaches_a_device_is_the_card(cuda, hpu):
    assert ported(cuda).ported == f"{hpu}\n"


@pytest.mark.parametrize(
    ("code", "text", "why"),
    [
        ("torch.save(x, f'cuda:{rank}-epoch{e}.pt')", "f'cuda:{rank}-epoch{e}.pt'", MORE),
        ("torch.save(x, 'cuda:' + name + '.txt')", "'cuda:' + name + '.txt'", MORE),
        ("torch.save(x, 'cuda:%d-%d.pt' % (a, b))", "'cuda:%d-%d.pt' % (a, b)", MORE),
        ("torch.save(x, 'cuda:{}.pt'.format(rank))", "'cuda:{}.pt'.format(rank)", MORE),
        ("p = f'cuda:{rank}'\nopen(p)", "f'cuda:{rank}'", NOWHERE),
        ("p = 'cuda:' + name\nopen(p)", "'cuda:' + name", NOWHERE),
        ("settings.get('cuda')", "'cuda'", NOWHERE),
        ("settings['cuda']", "'cuda'", NOWHERE),
        ("x = settings.get('cuda')\ny.to(x)", "'cuda'", NOWHERE),
        ("x = 'cuda'", "'cuda'", NOWHERE),
        ("names = ['cuda', 'rocm']", "'cuda'", NOWHERE),
        ("colours = {'cuda': 'green'}", "'cuda'", NOWHERE),
        ("print('cuda')", "'cuda'", NOWHERE),
        ("if row.vendor == 'cuda': f()", "'cuda'", NOWHERE),
        ("if 'cuda' in torch.__version__: f()", "'cuda'", NOWHERE),
        ("f = open('cuda')", "'cuda'", NOWHERE),
        ("def f(x, kind): return kind\nf(x, 'cuda')", "'cuda'", NOWHERE),
        ("kind = 'cuda'\ndef f(kind): return x.to(kind)", "'cuda'", NOWHERE),
        ("kind = 'cuda' if torch.cuda.device_count else 'cpu'\nopen(f'wheel-{kind}.whl')",
         "'cuda'", NOWHERE),
        ("device = 'cuda'\nopen(f'{device}.txt')", "'cuda'", NOWHERE),
        ("group('nccl')", "'nccl'", NOWHERE),
        ("logs['nccl'] = 1", "'nccl'", NOWHERE),
        ("run('cuda:0')", "'cuda:0'", NOWHERE),
        ("match word:\n    case 'cuda': f()", "'cuda'", NOWHERE),
        ("d = f'cuda:{rank}'\nx.to(d)\ntorch.save(x, f'{d}.pt')", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\ntorch.save(x, d + '.pt')", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nout[d] = x", "f'cuda:{rank}'", SEVERAL),
        ("d = torch.device('cuda', rank)\nopen(f'{d}.txt')", "torch.device('cuda', rank)", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nb = d\nopen(b)", "f'cuda:{rank}'", SEVERAL),
    ],
)  # fmt: skip
def test_other_text_stays_and_is_reported(code, text, why):
    report = ported(code)
    assert report.ported.replace("torch.hpu", "torch.cuda") == f"{code}\n"
    line = next(i for i, each in enumerate(code.split("\n"), 1) if "cuda" in each or "nccl" in each)
    assert [(each.line, each.text) for each in report.findings] == [(line, f"{text} {why}")]


@pytest.mark.parametrize(
    ("code", "hpu"),
    [
        ("torch.load(p, map_location={'cuda:0': 'cuda:1'})",
         "torch.load(p, map_location={'cuda:0': 'hpu'})"),
        ("at = {'cuda:0': 'cuda:1'}\ntorch.load(p, map_location=at)",
         "at = {'cuda:0': 'hpu'}\ntorch.load(p, map_location=at)"),
        ("at = {'cuda:0': f'cuda:{rank}'}\ntorch.load(p, at)",
         "at = {'cuda:0': 'hpu'}\ntorch.load(p, at)"),
        ("map_location = {'cuda:0': 'cuda:%d' % rank}\nload(p, map_location=map_location)",
         "map_location = {'cuda:0': 'hpu'}\nload(p, map_location=map_location)"),
    ],
)  # fmt: skip
def test_keys_of_map_location_still_match_the_file(code, hpu):
    report = ported(code)
    assert report.ported == f"{hpu}\n"
    assert f"'cuda:0' {SAVED}" in [each.text for each in report.findings]


@pytest.mark.parametrize(
    "code",
    [
        "parts = {}\nfor d in ['cuda:0', 'cuda:1']:\n    parts[d] = x.to(d)",
        "a, b = 'cuda:0', 'cuda:1'\nout = {a: x.to(a), b: y.to(b)}",
        "if device == 'cuda:0': f()\nelif device == 'cuda:1': g()",
        "both = {'cuda:0', 'cuda:1'}\nfor d in both: x.to(d)",
        "[torch.save(x.to(d), f'{d}.pt') for d in ('cuda:0', 'cuda:1')]",
    ],
)
def test_different_texts_stay_different(code):
    report = ported(code)
    assert report.ported == f"{code}\n"
    assert {each.text for each in report.findings} == {
        f"'cuda:0' {SEVERAL}",
        f"'cuda:1' {SEVERAL}",
    }


def test_a_device_that_is_other_text_too_is_reported():
    report = ported("kind = 'cuda'\nx.to(kind)\nopen(f'{kind}.txt')")
    assert report.ported == "kind = 'hpu'\nx.to(kind)\nopen(f'{kind}.txt')\n"
    assert [(each.line, each.text) for each in report.findings] == [
        (1, "'cuda' is used as other text too, and is 'hpu' there as well")
    ]


def test_functions_and_texts_of_earlier_cells_are_known():
    def train(model, where_device):
        pass

    def rename(model, name):
        pass

    report = ported(
        "train(m, 'cuda')\nrename(m, 'cuda')\nx.to(kind)\nprint(kind)",
        train=train,
        rename=rename,
        kind="cuda",
    )
    assert report.ported == "train(m, 'hpu')\nrename(m, 'cuda')\nx.to(kind)\nprint(kind)\n"
    assert [(each.line, each.text) for each in report.findings] == [
        (2, f"'cuda' {NOWHERE}"),
        (3, "kind is 'cuda', made by another cell: port that one"),
    ]


def test_ported_checkpoints_of_a_gpu_are_read(torch, tmp_path, run, shell):
    storage = torch.ones(2, device="hpu")
    torch.save(storage, tmp_path / "hpu.pt")
    shell.user_ns["path"] = tmp_path / "hpu.pt"
    cell = run(
        "%%hpu_port\nimport torch\nx = torch.load(path, map_location={'cuda:0': 'cuda:1', "
        "'hpu:0': 'cpu'})\nx.device.type"
    )
    assert (cell.error, cell.result) == (None, "cpu")
