"""Pygments lexer for Python in notebooks, including magics."""

from __future__ import annotations

from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Punctuation, Text


class NotebookLexer(PythonLexer):
    """Python with magics and shell commands; the contents of cell magics are also Python."""

    name = "Python of notebooks"
    aliases = ()
    filenames = ()
    mimetypes = ()
    url = ""
    version_added = ""

    tokens = {
        "root": [
            (r"^(\s*)(%%?|!)(\w+)([^\n]*)", bygroups(Text, Operator, Keyword, Text)),
            (r"(=)(\s*)(%)(\w+)([^\n]*)", bygroups(Operator, Text, Operator, Keyword, Text)),
            (r"^([\w%.]+)(\?\??)$", bygroups(Keyword, Punctuation)),
            inherit,
        ]
    }
