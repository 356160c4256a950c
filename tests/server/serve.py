"""Prints hpu_magic's routes, then starts a Jupyter server."""

import json
import sys
from collections.abc import Iterator

from jupyter_server.serverapp import ServerApp
from tornado.routing import PathMatches, RuleRouter

METHODS = ("get", "post", "put", "patch", "delete")


def routes(router: RuleRouter) -> Iterator[tuple[str, list[str]]]:
    """Yield the pattern and the methods of each route of hpu_magic."""
    for rule in router.rules:
        if isinstance(rule.target, RuleRouter):
            yield from routes(rule.target)
        elif isinstance(rule.matcher, PathMatches) and "hpu_magic" in rule.matcher.regex.pattern:
            own = [name for name in METHODS if name in vars(rule.target)]
            yield rule.matcher.regex.pattern, own


def main() -> None:
    app = ServerApp.instance()
    app.initialize(sys.argv[1:])
    print(json.dumps(list(routes(app.web_app.default_router))), flush=True)
    app.start()


main()
