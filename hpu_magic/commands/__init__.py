"""The public functions: each command for scripts, and the declaration of its magic.

A function's parameters are the options of its magic: names, types, defaults and the first sentence
of each description. Modules here import neither torch nor drawing libraries at the top level; a
function imports the code that does its work when it is called.
"""
