"""Estimate a model's time and memory on a card, without a card and without computing anything.

A *program* holds the operations of one step (`tracing/`). A *layout* determines which share of
these operations each card runs. Memory is calculated from the lifetimes of storages, and time from
a table of constants (`cost/`).
The package depends on torch and the vendor's public API, but not on notebooks.
"""
