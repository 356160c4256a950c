"""HPU Graphs, which capture operations once and replay them without Python, in lazy mode."""

from habana_frameworks.torch.hpu.graphs._cache import (
    CachedParams,
    wrap_in_hpu_graph,
    wrap_in_hpu_graph_func,
)
from habana_frameworks.torch.hpu.graphs._capture import HPUGraph, graph, is_current_stream_capturing
from habana_frameworks.torch.hpu.graphs._graphed_callables import make_graphed_callables
from habana_frameworks.torch.hpu.graphs._inputs import copy_to
from habana_frameworks.torch.hpu.graphs._keys import input_hash
from habana_frameworks.torch.hpu.graphs._module_cacher import ModuleCacher
from habana_frameworks.torch.hpu.graphs._tensor_packer import TensorPacker
