"""HPU Graphs: operations recorded once and replayed without Python, in lazy mode only."""

from ._cache import CachedParams, wrap_in_hpu_graph, wrap_in_hpu_graph_func
from ._capture import HPUGraph, graph, is_current_stream_capturing
from ._graphed_callables import make_graphed_callables
from ._inputs import copy_to
from ._keys import input_hash
from ._module_cacher import ModuleCacher
from ._tensor_packer import TensorPacker

__all__ = [
    "CachedParams",
    "HPUGraph",
    "ModuleCacher",
    "TensorPacker",
    "copy_to",
    "graph",
    "input_hash",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "wrap_in_hpu_graph",
    "wrap_in_hpu_graph_func",
]
