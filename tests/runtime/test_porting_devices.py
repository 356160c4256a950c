"""Device strings are converted only if they are used as devices; others are unchanged."""

import ast
import re

import pytest

from hpu_magic.runtime.porting.port import port

NOWHERE = "is not used as a device and was not changed"
MORE = "contains settings other than the device and was not changed"
SAVED = "is a device in a saved file and was not changed"
SEVERAL = (
    "is also used as ordinary text, and several devices would be replaced with the same text, so "
    "it was not changed: use separate strings for devices and for other text"
)


def ported(code, **variables):
    known = {"htcore": None, "torch": __import__("torch"), **variables}
    report = port(code, mark_steps=False, variables=known)
    assert ast.unparse(ast.parse(report.executed)) == ast.unparse(ast.parse(report.ported))
    return report


def on_hpu(code):
    """Return the code with all device strings, backends and modules of CUDA replaced."""
    code = re.sub(r"f?'cuda(:(\d|\{rank\}))?'", "'hpu'", code)
    return code.replace("'nccl'", "'hccl'").replace("torch.cuda", "torch.hpu")


@pytest.mark.parametrize(
    "code",
    [
        # Arguments that are devices
        "x.to(device='cuda:0')",
        "torch.ones(2, device='cuda')",
        "torch.load(p, 'cuda')",
        "torch.load(p, map_location='cuda:0')",
        "torch.load(p, map_location=f'cuda:{rank}')",
        "torch.set_default_device('cuda')",
        "torch.cuda.set_device('cuda:1')",
        "torch.cuda.synchronize('cuda:0')",
        "torch.amp.GradScaler('cuda')",
        "torch.autocast(device_type='cuda')",
        "with autocast('cuda'): f()",
        "torch.Generator('cuda')",
        "torch.nn.Linear(2, 2, True, 'cuda')",
        "with torch.device('cuda'): f()",
        "pipeline('text', device='cuda:0')",
        "load(m, device_map={'': 'cuda:0'})",
        "send_to_device(x, 'cuda')",
        "Trainer(accelerator='cuda')",
        "dist.init_process_group(backend='nccl')",
        "b = 'nccl' if cuda else 'gloo'\ndist.init_process_group(b)",
        "p.add_argument('--device', default='cuda', choices=['cpu', 'cuda'])",
        "args = p.parse_args(['--device', 'cuda'])",
        "settings.get('device', 'cuda')",
        "os.environ.get('DEVICE', 'cuda')",
        "getattr(args, 'device', 'cuda')",
        "config['device'] = 'cuda'",
        "config = {'device': 'cuda', 'name': 'a'}",
        "dict(device='cuda')",
        # Through variables
        "kind = 'cuda'\nx.to(kind)",
        "a = b = 'cuda:0'\nc = b\nx.to(c)",
        "a, n = 'cuda', 3\nx.to(a)",
        "if (kind := 'cuda'): x.to(kind)",
        "place = f'cuda:{rank}'\nx.to(place)",
        "kind = 'cuda'\nx.to(f'{kind}:0')",
        "kind = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "kind = 'cuda' if a else 'mps' if b else 'cpu'\nx.to(kind)",
        "if a:\n    kind = 'cuda'\nelse:\n    kind = 'cpu'",
        "x.to(args.kind or 'cuda')",
        "device = 'cuda'\nprint(f'on {device}')",
        "DEVICE: str = 'cuda:0'",
        "device = torch.device(f'cuda:{rank}')\nmodel.to(device)",
        # Through functions and classes
        "def f(x, kind='cuda'): return x.to(kind)",
        "def f(x, *, kind='cuda'): return x.to(kind)",
        "def f(x, kind): return x.to(kind)\nf(y, 'cuda')",
        "def f(x, kind): return x.to(kind)\nf(kind='cuda', x=y)",
        "f = lambda x, kind: x.to(kind)\nf(y, 'cuda')",
        "def pick(): return 'cuda'\nx.to(pick())",
        "def get_device(): return 'cuda'",
        "class A:\n    def __init__(self): self.kind = 'cuda'\n"
        "    def go(self, x): return x.to(self.kind)",
        "class A:\n    def __init__(self, kind): self.kind = kind\n"
        "    def go(self, x): return x.to(self.kind)\nA('cuda')",
        "class C:\n    kind = 'cuda'\nx.to(C.kind)",
        "class C:\n    kind: str = 'cpu'\nc = C(kind='cuda')\nx.to(c.kind)",
        "class A:\n    @property\n    def kind(self): return 'cuda'\n"
        "    def go(self, x): return x.to(self.kind)",
        # Through containers
        "kinds = ['cpu', 'cuda']\nfor k in kinds: x.to(k)",
        "for i, k in enumerate(['cpu', 'cuda']): x.to(k)",
        "[x.to(k) for k in ('cpu', 'cuda')]",
        "places = {'a': 'cuda:0', 'b': 'cuda:1'}\nx.to(places['a'])",
        "for n, k in {'a': 'cuda'}.items(): x.to(k)",
        "ks = []\nks.append('cuda')\nx.to(ks[0])",
        # Through argument unpacking, generators and callbacks
        "def f(kind): return x.to(kind)\nf(**{'kind': 'cuda', 'n': 1})",
        "def f(*a): return x.to(a[0])\nf(*['cuda'])",
        "def f(**kw): return x.to(kw['kind'])\nf(**dict(kind='cuda'))",
        "x.to(*('cuda',))",
        "def kinds(): yield 'cuda'\nfor k in kinds(): x.to(k)",
        "def kinds(): yield from ['cuda']\nfor k in kinds(): x.to(k)",
        "list(map(lambda k: x.to(k), ['cuda:0', 'cuda:1']))",
        "list(map(torch.device, ['cuda:0', 'cuda:1']))",
        "from functools import partial\npartial(torch.Tensor.to, x, 'cuda')",
        "from functools import partial\ndef f(x, k): x.to(k)\ng = partial(f, x)\ng('cuda')",
        "def f(kind): x.to(kind)\nThread(target=f, args=('cuda:0',)).start()",
        "def call(f, k): f(k)\ncall(lambda k: x.to(k), 'cuda')",
        "def f(kind): x.to(kind)\nways = {'a': f}\nways['a']('cuda')",
        "torch.load(p, map_location=lambda s, at: 'cuda:1')",
        "import itertools\nat = itertools.cycle(['cuda:0', 'cuda:1'])\nx.to(next(at))",
        "x.to(':'.join(['cuda', '0']))",
        "kind = 'cuda'\nx.to(kind + ':0')",
        # Through fields, inherited attributes and options
        "@dataclass\nclass C:\n    name: str\n    kind: str\nc = C('a', 'cuda')\nx.to(c.kind)",
        "class C:\n    kinds: list = field(default_factory=lambda: ['cuda'])\nx.to(C().kinds[0])",
        "class C:\n    kind: str = 'cuda'\ndef run(c): x.to(c.kind)\nrun(C())",
        "from collections import namedtuple\nC = namedtuple('C', 'kind n')\nc = C('cuda', 3)\n"
        "x.to(c.kind)",
        "class A:\n    kind = 'cuda'\nclass B(A):\n    def go(self): x.to(self.kind)",
        "class A:\n    def __init__(self, k): self.k = k\nclass B(A):\n"
        "    def __init__(self): super().__init__('cuda')\n    def go(self): x.to(self.k)",
        "c = settings({'kind': 'cuda', 'n': 1})\nx.to(c.kind)",
        "p.add_argument('--gpu', default='cuda:0')\na = p.parse_args(['--gpu', 'cuda'])\n"
        "x.to(a.gpu)",
        "p.add_argument('-w', '--run-on', default='cuda')\na = vars(p.parse_args())\n"
        "x.to(a['run_on'])",
        # Comparisons
        "if x.device.type in ('cuda', 'mps'): f()",
        "if str(x.device).startswith('cuda'): f()",
        "if 'cuda' in str(x.device): f()",
        "if x.device == torch.device('cuda', 0): f()",
        "kind = x.device.type\nif kind == 'cuda': f()",
        "def f(kind):\n    if kind == 'cuda': g()\n    x.to(kind)",
        "if args.device == 'cuda': f()",
        "kind = 'cuda'\nx.to(kind)\nif kind == 'cuda': f()",
        "size = {'cuda': 64, 'cpu': 8}[x.device.type]",
        "sizes = {'cuda': 64, 'cpu': 8}\ndevice = 'cuda'\nsize = sizes[device]",
        "match x.device.type:\n    case 'cuda' | 'mps': f()",
        "self.assertEqual(x.device.type, 'cuda')",
        "d, kind = f'cuda:{rank}', 'cuda:0'\nx.to(d)\ny.to(kind)\nopen(f'{kind}.txt')",
        "if dist.get_backend() == 'nccl': f()",
    ],
)
def test_string_that_is_used_as_a_device_is_converted(code):
    assert ported(code).ported == f"{on_hpu(code)}\n"


@pytest.mark.parametrize(
    ("cuda", "hpu"),
    [
        ("place = 'cuda' + ':' + str(rank)\nx.to(place)", "place = 'hpu'\nx.to(place)"),
        ("if str(x.device) == 'cuda:0': f()", "if str(x.device) == 'hpu:0': f()"),
        ("if x.device == torch.device('cuda:0'): f()", "if x.device == torch.device('hpu:0'): f()"),
        ("d = torch.device(f'cuda:{rank}')\nassert x.device == d",
         "d = torch.device('hpu:0')\nassert x.device == d"),
        ("assert 'cuda' in str(x.device)\nassert str(x.device) == 'cuda:0'",
         "assert 'hpu' in str(x.device)\nassert str(x.device) == 'hpu:0'"),
        ("assert x.device == torch.device('cuda:0')\nassert x.device.type == 'cuda'\n"
         "assert str(x.device).startswith('cuda')",
         "assert x.device == torch.device('hpu:0')\nassert x.device.type == 'hpu'\n"
         "assert str(x.device).startswith('hpu')"),
        ("d = 'cuda:0'\nx.to(d)\nassert str(x.device) == d\nif d == 'cuda:0': f()",
         "d = 'hpu:0'\nx.to(d)\nassert str(x.device) == d\nif d == 'hpu:0': f()"),
    ],
)  # fmt: skip
def test_device_index_is_removed_unless_it_is_compared(cuda, hpu):
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
        ("group('nccl')", "'nccl'", NOWHERE),
        ("logs['nccl'] = 1", "'nccl'", NOWHERE),
        ("run('cuda:0')", "'cuda:0'", NOWHERE),
        ("d = f'cuda:{rank}'\nx.to(d)\ntorch.save(x, f'{d}.pt')", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\ntorch.save(x, d + '.pt')", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nout[d] = x", "f'cuda:{rank}'", SEVERAL),
        ("d = torch.device('cuda', rank)\nopen(f'{d}.txt')", "torch.device('cuda', rank)", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nb = d\nopen(b)", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nopen('%s-%d.pt' % (d, n))", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nout[d, 1] = x", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nout.setdefault(d, [])", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nout.update({d: x})", "f'cuda:{rank}'", SEVERAL),
        ("d = f'cuda:{rank}'\nx.to(d)\nname += d\nopen(name)", "f'cuda:{rank}'", SEVERAL),
        ("ds = [f'cuda:{i}' for i in r]\nx.to(ds[0])\nout = dict(zip(ds, r))",
         "f'cuda:{i}'", SEVERAL),
        ("ds = [f'cuda:{i}' for i in r]\nx.to(ds[0])\nn = len(set(ds))", "f'cuda:{i}'", SEVERAL),
        ("ds = [f'cuda:{i}' for i in r]\nx.to(ds[0])\nout = dict.fromkeys(ds)",
         "f'cuda:{i}'", SEVERAL),
        ("sizes = {'cuda': 64, 'hpu': 32}\nsize = sizes[x.device.type]", "'cuda'", SEVERAL),
        *((code, "'cuda'", NOWHERE) for code in (
            "settings.get('cuda')",
            "settings['cuda']",
            "x = settings.get('cuda')\ny.to(x)",
            "x = 'cuda'",
            "names = ['cuda', 'rocm']",
            "colours = {'cuda': 'green'}",
            "print('cuda')",
            "if row.vendor == 'cuda': f()",
            "if 'cuda' in torch.__version__: f()",
            "f = open('cuda')",
            "def f(x, kind): return kind\nf(x, 'cuda')",
            "kind = 'cuda'\ndef f(kind): return x.to(kind)",
            "kind = 'cuda' if torch.cuda.device_count else 'cpu'\nopen(f'wheel-{kind}.whl')",
            "device = 'cuda'\nopen(f'{device}.txt')",
            "match word:\n    case 'cuda': f()",
            "ck = torch.load('cuda')\nx.to(ck['device'])",
            "kind = 'cuda'\nck = torch.load(f'{kind}.pt')\nx.to(ck['device'])",
            "run = track(config={'name': 'cuda', 'n': 1})\nx.to(run.config['device'])",
            "c = settings({'name': 'cuda', 'kind': d})\nx.to(c.kind)",
            "c = {'name': 'cuda', 'device': d}\nx.to(c['device'])\nopen(c['name'])",
            "p.add_argument('--name', default='cuda')\na = p.parse_args()\n"
            "x.to(a.gpu)\nopen(a.name)",
            "from functools import partial\ndef f(kind, name): x.to(kind)\npartial(f, name='cuda')",
        )),
    ],
)  # fmt: skip
def test_string_that_is_not_a_device_stays_and_is_reported(code, text, why):
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
def test_keys_of_map_location_keep_the_saved_device(code, hpu):
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
        "out = {d: x.to(d) for d in ('cuda:0', 'cuda:1')}",
        "ds = ('cuda:0', 'cuda:1')\nseen = {d for d in ds}\n[x.to(d) for d in ds]",
        "a, b = 'cuda:0', 'cuda:1'\nout[a] = x.to(a)\nout[b] = y.to(b)",
        "a = 'cuda:0'\nb = 'cuda:1'\n"
        "torch.save(x.to(a), a + '.pt')\ntorch.save(y.to(b), b + '.pt')",
        "a = torch.device('cuda:0')\nb = torch.device('cuda:1')\nout = {a: x.to(a), b: x.to(b)}",
        "for d in ('cuda:0', 'cuda:1'):\n    x.to(d)\n    seen.add(d)",
        "ds = ['cuda:0', 'cuda:1']\n[x.to(d) for d in ds]\ni = ds.index(d)",
        "for d in {'cuda:0': 1} | {'cuda:1': 2}: x.to(d)",
        "class A:\n    def __init__(self, d): self.d = d\n"
        "    def go(self): torch.save(x.to(self.d), f'{self.d}.pt')\n"
        "a, b = A('cuda:0'), A('cuda:1')",
    ],
)
def test_strings_that_would_become_equal_stay_unchanged(code):
    report = ported(code)
    assert report.ported == f"{code}\n"
    assert {each.text for each in report.findings} == {
        f"'cuda:0' {SEVERAL}",
        f"'cuda:1' {SEVERAL}",
    }


@pytest.mark.parametrize(
    "use",
    [
        "rates['cuda'] *= 2",
        "rates.get('cuda')",
        "rates.pop('cuda')",
        "rates.setdefault('cuda', 1)",
        "del rates['cuda']",
        "assert 'cuda' in rates",
        "def f(at): return at['cuda']\nf(rates)",
    ],
)
@pytest.mark.parametrize("made", ["rates = {'cuda': 1, 'cpu': 2}", "rates = {}", "pass"])
def test_dictionary_keys_and_their_lookups_change_together(made, use):
    code = f"{made}\nkind = 'cuda'\nx.to(kind)\nrates[kind] = 3\n{use}\nother['cuda']\n"
    text, _, other = code.rpartition("other")
    assert ported(code).ported == text.replace("cuda", "hpu") + f"other{other}"


def test_lookups_of_unchanged_keys_stay_unchanged():
    code = (
        "out = {}\nfor d in ('cuda:0', 'cuda:1'):\n    out[d] = x.to(d)\n"
        "    if 'cuda' in d: f()\n    if d.startswith('cuda'): g()\nout['cuda:0'] += 1\n"
    )
    assert ported(code).ported == code


def test_device_that_is_also_used_as_other_text_is_reported():
    report = ported("kind = 'cuda'\nx.to(kind)\nopen(f'{kind}.txt')")
    assert report.ported == "kind = 'hpu'\nx.to(kind)\nopen(f'{kind}.txt')\n"
    assert [(each.line, each.text) for each in report.findings] == [
        (1, "'cuda' is also used as ordinary text, which becomes 'hpu' too")
    ]


def test_functions_and_strings_of_earlier_cells_are_followed():
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
        (3, "kind was set to 'cuda' in another cell: port that cell"),
    ]


def test_ported_load_maps_the_device_of_a_checkpoint(torch, tmp_path, run, shell):
    storage = torch.ones(2, device="hpu")
    torch.save(storage, tmp_path / "hpu.pt")
    shell.user_ns["path"] = tmp_path / "hpu.pt"
    cell = run(
        "%%hpu_from_cuda\nimport torch\nx = torch.load(path, map_location={'cuda:0': 'cuda:1', "
        "'hpu:0': 'cpu'})\nx.device.type"
    )
    assert (cell.error, cell.result) == (None, "cpu")


def test_ported_comparisons_and_lookups_hold_on_the_device(run):
    cell = run(
        "%%hpu_from_cuda\nimport torch\nrates = {'cuda': 0.5, 'cpu': 1}\ndevice = 'cuda'\n"
        "x = torch.ones(2, device=device)\nassert 'cuda' in str(x.device)\n"
        "assert str(x.device) == 'cuda:0'\nrates['cuda'] *= 2\n(rates[device], 'cuda' in rates)"
    )
    assert (cell.error, cell.result) == (None, (1.0, True))
