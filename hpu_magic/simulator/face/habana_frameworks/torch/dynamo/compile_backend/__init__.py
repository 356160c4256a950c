"""The ``hpu_backend`` backend for `torch.compile`, and its settings."""

from habana_frameworks.torch.dynamo.compile_backend import config
