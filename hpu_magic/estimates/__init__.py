"""Time and memory of a model on a card, estimated without a card and without computing.

A *program* contains the operations of one step (`tracing/`), a *layout* the share of it that each
of several cards has. Memory follows from the lifetimes of storages, time from a table of constants
(`cost/`). Depends on torch and the vendor's public API, and on nothing of notebooks.
"""
