"""Support for fits and errors of transformers, accelerate and libraries built on them."""
