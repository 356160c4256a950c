"""``torch.compile(backend="hpu_backend")``, for eager mode."""

import torch._dynamo  # must come first: importing it registers the modules of this package
