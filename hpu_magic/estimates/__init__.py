"""Estimates of a model's time and memory on a card, without a card and without computing.

A *program* contains the operations of one step (`tracing/`), and a *layout* the share of each card.
Memory is calculated from the lifetimes of storages, and time from a table of constants (`cost/`).
The package depends on torch and the vendor's public API, but not on notebooks.
"""
