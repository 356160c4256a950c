"""Base classes of operators that users implement."""
