"""BokehJS for the page, without leaving it in the saved notebook.

jupyter_bokeh's view needs ``window.Bokeh`` and does not bring it. The script
goes out as an output, and the widget then takes this output's place: the front
end runs the one before it makes the other, what is saved holds none of the
script, and nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["display_after_loading"]

_LOADER = """(() => {
  if (window.Bokeh && window.Bokeh.version === %(version)s) return;
  const script = document.createElement("script");
  script.textContent = %(source)s;
  document.head.appendChild(script);
  script.remove();
})();"""


@cache
def _loader() -> str:
    import bokeh

    source = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    return _LOADER % {
        "version": json.dumps(bokeh.__version__),
        "source": json.dumps(source.read_text(encoding="utf-8")),
    }


def display_after_loading(widget: Any) -> Any:
    """Display a widget that needs BokehJS below the running cell; return the display's handle."""
    from IPython.display import display

    place = display(
        {"application/javascript": _loader(), "text/plain": ""}, raw=True, display_id=True
    )
    place.update(widget)
    return place
