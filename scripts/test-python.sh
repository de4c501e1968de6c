#!/bin/sh
# Builds the wheel, installs it into a virtual environment where nothing else is, and runs python/tests with it.
#
#   scripts/test-python.sh [OPTIONS OF PYTEST]
#
# GRIDLANE_BINARY names the program that serves (else that of a debug build), GRIDLANE_DATA the directory with real files (else
# ../shared/data; files that are made take their places where there is neither). GRIDLANE_WHEEL names a wheel that is tried instead.
set -eu
cd "$(dirname "$0")/.."
. scripts/env.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

wheel=${GRIDLANE_WHEEL-}
if [ -z "$wheel" ]; then
    sh scripts/wheel.sh --debug "$work/wheel"
    wheel=$(ls "$work"/wheel/*.whl)
fi
"$python_readers/bin/python" -m venv "$work/clean"
"$work/clean/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
python=$work/clean/bin/python
export PYTHONDONTWRITEBYTECODE=1
# It needs nothing but Python.
(cd "$work" && "$python" -I -c 'import asyncio, gridlane
try:
    gridlane.stat("http://127.0.0.1:9/f")
except ConnectionError as error:
    assert error.kind == "network" and error.retryable
else:
    raise SystemExit("a server where there is none")')
# What reads through it lies in another environment: beside it, and not in it.
PYTHONPATH=$(echo "$python_readers"/lib/python3.*/site-packages)
export PYTHONPATH
# C++ ROOT is a program of its own to the tests.
GRIDLANE_ROOT_PYTHON=$root_python
export GRIDLANE_ROOT_PYTHON
GRIDLANE_UPROOT_SOURCE=$uproot_source
export GRIDLANE_UPROOT_SOURCE
# Of the directory that this was called in the tests know nothing.
GRIDLANE_BINARY=${GRIDLANE_BINARY:+$(realpath "$GRIDLANE_BINARY")}
[ -n "$GRIDLANE_BINARY" ] && export GRIDLANE_BINARY || unset GRIDLANE_BINARY
GRIDLANE_DATA=${GRIDLANE_DATA:+$(realpath "$GRIDLANE_DATA")}
[ -n "$GRIDLANE_DATA" ] && export GRIDLANE_DATA || unset GRIDLANE_DATA
cd python/tests
# Not the package's directory here, but the installed one.
"$python" -m pytest -q -p no:cacheprovider -c ../pyproject.toml --rootdir .. "$@" .
cd ..
# Annotations, and that the stubs say of the extension what it has.
installed=$(cd "$work" && "$python" -c 'import gridlane, os; print(os.path.dirname(gridlane.__file__))')
"$python" -m mypy --config-file pyproject.toml --cache-dir "$work/mypy" "$installed"
cd "$work" && "$python" -m mypy.stubtest --ignore-disjoint-bases gridlane._gridlane
