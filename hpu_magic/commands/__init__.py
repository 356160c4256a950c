"""The public functions, which provide the commands to scripts and declare their magics.

A function's parameters define the options of its magic: their names, types and defaults. The help
of an option is the first sentence of the parameter's description. Modules in this package do not
import torch or plotting libraries at the top level; each function imports its implementation when
it is called.
"""
