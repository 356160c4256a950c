"""The colours of code: Python as notebooks have it, where a line may be a magic's."""

from __future__ import annotations

from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Punctuation, Text


class NotebookLexer(PythonLexer):
    """Python with magics, whose cells are Python too, and with commands of the shell."""

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
