"""Run a module like ``python -m``, but with kernels that are forks.

The first argument is the descriptor of a socket of `ForkedPython`.
"""

import runpy
import socket
import sys
from pathlib import Path

from forked_python import ForkedPython
from jupyter_client.provisioning import local_provisioner

python = ForkedPython(requests=socket.socket(fileno=int(sys.argv[1])))


def launch(command, **options):
    """Start a kernel, and write its process ID next to its connection file."""
    fork = python.kernel(command, **options)
    [file] = [part for part in command if part.endswith(".json")]
    Path(file).with_suffix(".pid").write_text(str(fork.pid))
    return fork


local_provisioner.launch_kernel = launch
sys.argv = sys.argv[2:]
sys.path[0] = str(Path.cwd())
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
