"""Sphinx configuration of the documentation site built by `tools/build_site.py`."""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from website.lexer import NotebookLexer

from hpu_magic import __version__

project = "hpu_magic"
author = "The hpu_magic developers"
copyright = author
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "website.autodoc",
]

# Several classes have a `peak` attribute, so Sphinx cannot resolve a reference to the bare name.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

# The notebooks are executed before Sphinx runs. Widgets are shown as HTML, because a page without a
# kernel would have to load the widgets' code from the network.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
default_role = "code"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True

copybutton_selector = "div:not(.highlight-output) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "hpu_magic"
html_static_path = ["_static", "images"]
html_context = {"default_mode": "auto"}
# Pages with card grids also use the space of the sidebars.
html_sidebars: dict[str, list[str]] = {"index": [], "notebooks/index": []}
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "hpu_magic"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "notebooks/index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_nav_level": 2,
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app: Sphinx) -> None:
    """Highlight Python blocks as notebook cells and output blocks as plain text."""
    for name in ("python", "py", "ipython", "ipython3"):
        app.add_lexer(name, NotebookLexer)
    app.add_lexer("output", TextLexer)
