"""Run a module like ``python -m``, but with kernels that are forks.

The first argument is the descriptor of a socket of `ForkedPython`.
"""

import runpy
import socket
import sys
from pathlib import Path

from forked_python import ForkedPython
from jupyter_client.provisioning import local_provisioner

number, *sys.argv = sys.argv[1:]
local_provisioner.launch_kernel = ForkedPython(socket.socket(fileno=int(number))).kernel
sys.path[0] = str(Path.cwd())
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
