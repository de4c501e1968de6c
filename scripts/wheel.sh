#!/bin/sh
# Builds the wheel of the Python package: one file for every Python from 3.9 on.
#
#   scripts/wheel.sh DIRECTORY            optimized, for every Linux with glibc 2.28 or newer (Debian 10, RHEL 8, Ubuntu 18.10)
#   scripts/wheel.sh --debug DIRECTORY    for this machine, sooner
#
# The linker and the C compiler for glibc 2.28 are Zig's, which brings that version's symbols: what is here may be newer.
set -eu
cd "$(dirname "$0")/.."
. scripts/env.sh

is_debug=no
if [ "${1-}" = --debug ]; then
    is_debug=yes
    shift
fi
[ $# = 1 ] || {
    echo 'usage: scripts/wheel.sh [--debug] DIRECTORY' >&2
    exit 2
}
mkdir -p "$1"
out=$(cd "$1" && pwd)
rm -f "$out"/gridlane-*.whl
# maturin looks for `python3 -m ziglang`.
PATH=$wheel_tools:$PATH
# Where the other builds are, wherever this runs.
case ${CARGO_TARGET_DIR:-target} in
/*) ;;
*) CARGO_TARGET_DIR=$(pwd)/${CARGO_TARGET_DIR:-target} ;;
esac
export CARGO_TARGET_DIR
cd python
if [ $is_debug = yes ]; then
    # As in the other builds of the tests.
    "$wheel_tools/maturin" build --quiet --profile dev --compatibility linux --out "$out"
else
    "$wheel_tools/maturin" build --release --strip --zig --compatibility manylinux_2_28 --out "$out"
fi
wheel=$(ls "$out"/gridlane-*-cp39-abi3-*.whl)
"$wheel_tools/abi3audit" --strict --summary "$wheel"
if [ $is_debug = no ]; then
    shown=$("$wheel_tools/auditwheel" show "$wheel")
    case $shown in
    *'"manylinux_2_28_'* | *'"manylinux_2_17_'* | *'"manylinux_2_24_'* | *'"manylinux_2_27_'*) ;;
    *)
        echo "$shown" >&2
        echo "wheel: it needs more than glibc 2.28" >&2
        exit 1
        ;;
    esac
fi
echo "built $wheel"
