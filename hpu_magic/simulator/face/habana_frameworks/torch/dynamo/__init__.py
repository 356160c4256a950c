"""``torch.compile(backend="hpu_backend")``, for eager mode."""

import torch._dynamo  # must come first: its import registers the modules of this package
