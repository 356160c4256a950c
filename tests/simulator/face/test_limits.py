"""Missing features of a PyTorch release are detected and reported once."""

import torch
from habana_frameworks.torch import _limits
from habana_frameworks.torch.dynamo.compile_backend import backends
from torch.utils import _foreach_utils


def test_missing_fused_optimizers_are_reported_in_one_sentence(monkeypatch):
    before = _limits.missing()
    monkeypatch.setattr(_foreach_utils, "_get_fused_kernels_supported_devices", lambda: ["cuda"])
    assert _limits.missing() == [
        _limits.FUSED_OPTIMIZERS,
        *(each for each in before if each != _limits.FUSED_OPTIMIZERS),
    ]
    assert _limits.sentence().startswith("torch ")
    assert "does not support these features on hpu: fused optimizers" in _limits.sentence()


def test_missing_features_are_printed_when_the_device_loads(forked_script):
    out = forked_script(
        """
        import contextlib, io
        import torch
        from torch.utils import _foreach_utils
        _foreach_utils._get_fused_kernels_supported_devices = lambda: ["cuda"]
        from hpu_magic.simulator import activate
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            activate()
        print(printed.getvalue().count("does not support these features on hpu: fused optimizers"))
        """
    )
    assert out.strip() == "1"


def test_graph_without_boxed_code_empties_its_list(monkeypatch):
    monkeypatch.delattr(torch.fx.graph, "_BoxedCodeGen", raising=False)
    graph = torch.fx.symbolic_trace(lambda x, y: (x - y,))
    arguments = [torch.tensor(3), torch.tensor(1)]
    assert backends._generated(graph)(arguments) == (torch.tensor(2),)
    assert arguments == []
