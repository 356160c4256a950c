"""Support for transformers, accelerate and libraries built on them: fits and errors."""
