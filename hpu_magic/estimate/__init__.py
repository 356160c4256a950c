"""Whether a model fits a card, and how long it takes there: told without a card or computing.

A *program* is what one step would run, operation by operation (`tracing/`); a *layout* says what of
it each of several cards has; memory comes from lifetimes, time from a table of constants. Knows
torch and the vendor's public API, and nothing of notebooks.
"""
