"""Prints hpu_magic's routes, then starts a Jupyter server whose kernels are forks.

The first argument is the descriptor of a socket of `ForkedPython`.
"""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.provisioning import local_provisioner
from jupyter_core import paths
from jupyter_server.serverapp import ServerApp
from tornado.routing import PathMatches, RuleRouter

sys.path.insert(0, str(Path(__file__).parents[1]))
from forked_python import ForkedPython

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
    number, *arguments = sys.argv[1:]
    paths.ENV_CONFIG_PATH.clear()  # enables other extensions, whose imports take time
    python = ForkedPython(requests=socket.socket(fileno=int(number)))
    local_provisioner.launch_kernel = python.kernel
    app = ServerApp.instance()
    app.initialize(arguments)
    print(json.dumps(list(routes(app.web_app.default_router))), flush=True)
    app.start()


main()
