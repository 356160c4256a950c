#!/bin/sh
# Install system packages that pip cannot install, if the user has the necessary rights. Otherwise,
# print which ones are missing and what the consequences are. Usage: system_packages.sh KIND...,
# where KIND is compiler, headers (for the Python in PYTHON, by default .venv/bin/python), browser
# or node.
set -eu

missing=""
need() { # package, consequence if it is missing
    missing="$missing $1"
    without="${without:+$without; }$2"
}

for kind in "$@"; do
    case $kind in
    compiler)
        command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ||
            need g++ "without a C++ compiler, the simulator's engine cannot be built"
        ;;
    headers)
        "${PYTHON:-.venv/bin/python}" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
            need python3-dev "without Python's headers, the simulator's engine cannot be built"
        ;;
    browser)
        command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
            command -v google-chrome >/dev/null || command -v google-chrome-stable >/dev/null ||
            need chromium "without a browser, the browser tests are skipped"
        ;;
    node)
        command -v node >/dev/null ||
            need nodejs "without Node, the JupyterLab sidebar cannot be built"
        ;;
    *)
        echo "system_packages.sh: unknown kind $kind" >&2
        exit 2
        ;;
    esac
done
[ -n "$missing" ] || exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "Missing on this system:$missing ($without). Install them with your system's package manager."
    exit 0
fi
echo "Installing$missing with apt-get ..."
# shellcheck disable=SC2086
if ! { $as_root apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
        $missing >/dev/null; }; then
    echo "apt-get could not install$missing: $without."
fi
