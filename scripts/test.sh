#!/bin/sh
# Everything that must hold before a change is merged, in the order in which it fails fastest.
# From a clean clone: 10 to 20 minutes on two cores, build included. What takes longer is in scripts/test-long.sh.
set -eu
cd "$(dirname "$0")/.."
sh scripts/bootstrap.sh --test
. scripts/env.sh

# In a clean clone nothing is there to go on from, and what only a next build or a debugger would need is not made.
if [ ! -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ]; then
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
fi
# Those that measure run one after the other and beside nothing else; the others wait a lot for what they have started.
measuring='ratios:: wan_limits:: wan_paths::'
# Those about TLS end to end, which run a second time with the records of rustls: docs/decisions/2026-11-23-records-are-fenced.md.
over_tls='https over_tls roots:: roots_ tls_on resumed_session certificates_in_tls'

started=$(date +%s)
step() {
    printf '\n== %s (at %s s)\n' "$1" "$(($(date +%s) - started))"
    shift
    "$@"
}

step 'tidiness' sh scripts/check-tidy.sh
step 'format' cargo fmt --all --check
step 'layers' sh scripts/check-layers.sh
step 'import cycles' python3 scripts/check-cycles.py
step 'words' python3 scripts/check-words.py
step 'arithmetic of the benchmarks' sh -c 'python3 bench/wan.py --self-test && python3 bench/read.py --self-test'
step 'lints' cargo clippy --workspace --all-targets --locked -- -D warnings
step 'lints without records of TLS of our own' cargo clippy -p gridlane-net --no-default-features --locked -- -D warnings
step 'build of the tests' cargo test --workspace --locked --no-run --quiet
# The documentation is made beside the tests, which wait a lot; a moment later, since whichever cargo is second waits for the first
# until that has built what it needs.
pages=$(mktemp)
(sleep 2 && RUSTDOCFLAGS='-D warnings' exec cargo doc --workspace --no-deps --locked --quiet) >"$pages" 2>&1 &
documentation=$!
trap 'kill "$documentation" 2>/dev/null || true; rm -f "$pages"' EXIT
# Words on purpose.
# shellcheck disable=SC2046
step 'tests' cargo test --workspace --locked --no-fail-fast -- --test-threads 6 $(printf -- '--skip %s ' $measuring)
# shellcheck disable=SC2046,SC2086
step 'tests about TLS, with the records of rustls' env GRIDLANE_TLS_RECORDS=rustls \
    cargo test --workspace --locked --test it -- --test-threads 6 $over_tls $(printf -- '--skip %s ' $measuring)
# With the binary that the tests above were made with. Scenarios with small files, on loopback and over the emulator.
lab_binary=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)/gridlane
step 'the lab' env GRIDLANE_LAB_BINARY="$lab_binary" PYTHONDONTWRITEBYTECODE=1 sh -c 'cd lab && exec "$0" -m pytest' "$lab_python"
step 'lints of the lab' "$lab_python" -m ruff check lab
step 'the Python package' env GRIDLANE_BINARY="$lab_binary" sh scripts/test-python.sh
step 'lints of the Python package' "$lab_python" -m ruff check python
step 'format of the Python package' "$lab_python" -m ruff format --check python
wait "$documentation" || {
    cat "$pages"
    exit 1
}
trap 'rm -f "$pages"' EXIT
# shellcheck disable=SC2086
step 'tests that measure' cargo test --workspace --locked --test it -- --test-threads 1 $measuring

printf '\nAll checks passed in %s s.\n' "$(($(date +%s) - started))"
