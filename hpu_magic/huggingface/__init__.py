"""Support for fits and errors in transformers, accelerate and libraries built on them."""
