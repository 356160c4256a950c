"""The site of the documentation: what its pages are made of, and how it is built."""
