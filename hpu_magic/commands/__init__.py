"""The public functions: each command once, for scripts and as the declaration of its magic.

A function's parameters are the options of its magic: names, types, defaults and the first sentence
of each description. Modules here import neither torch nor anything that draws; the work is done in
the parts below, which a function imports when it is called.
"""
