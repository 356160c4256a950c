"""What hpu_magic knows of transformers, accelerate and the libraries built on them."""
