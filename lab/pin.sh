#!/bin/sh
# Writes lab/requirements.txt again: all that the lab depends on, optional parts and tests included, with the digests of
# the files. Run it when a version in pyproject.toml has changed, look at the difference, and commit it.
#
# Needs a network and python3 with venv; uv is installed into a directory of its own and removed, as in scripts/pin.sh.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/uv"
"$work/uv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: uv
echo '# Written by `lab/pin.sh` from pyproject.toml; do not edit by hand.' >"$work/requirements.txt"
"$work/uv/bin/uv" pip compile --quiet --universal --python-version 3.11 --only-binary :all: --all-extras \
    --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml \
    >>"$work/requirements.txt"
mv "$work/requirements.txt" requirements.txt
echo "requirements.txt: $(grep -c '^[a-z]' requirements.txt) packages"
