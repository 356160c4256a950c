"""``torch.compile(backend="hpu_backend")``, for eager mode."""

import torch._dynamo  # must come first: this import registers the modules of the package
