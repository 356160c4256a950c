"""Estimate a model's speed and memory usage on a card; no card is needed and nothing is computed.

A *program* holds the operations of one step (`tracing/`). A *layout* determines which share of
these operations each card runs. Memory usage is calculated from the lifetimes of the storages, and
time from a table of constants (`cost/`). The package depends on torch and the vendor's public API,
but not on notebooks.
"""
