"""The ``hpu_backend`` backend of `torch.compile`, and its settings."""

from habana_frameworks.torch.dynamo.compile_backend import config
