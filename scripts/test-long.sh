#!/bin/sh
# What takes too long for every change: the same tests under load and again and again, and longer looks for inputs and
# moments that no test names. About two hours on two cores; nothing else should run there.
#
#   scripts/test-long.sh            all of it
#   scripts/test-long.sh STEP...    some: suite timing rustls fuzz garbage restarts
#
#   suite      everything that `make test` runs as tests, twelve at a time, while both cores are busy with something else; not
#              those that measure, which are about a machine that has nothing else to do
#   timing     what waits for clocks, sockets or /proc, 20 times (LONG_ROUNDS), likewise
#   rustls     the same tests as `suite`, without load, of a build without records of TLS of our own
#   fuzz       the smoke run of the fuzz targets with 500 000 inputs each (LONG_ITERATIONS), other ones each time
#   garbage    garbage over root:// for ten minutes (LONG_GARBAGE_SECONDS)
#   wheel      the tests of the Python package with the wheel of `make wheel`, as it is given away
#   restarts   copies of every kind while their servers are killed and started again, for 30 minutes (LONG_MINUTES)
#
# Exit code 0 if nothing failed. A step that fails does not keep the others from running.
set -eu
cd "$(dirname "$0")/.."
sh scripts/bootstrap.sh --test-long
. scripts/env.sh
export GRIDLANE_LONG_TESTS=1

# Tests about moments: what they wait for comes from a clock, the kernel or another process. Parts of their names, of the
# tests in the crates, and of those in the programs called `it`; and programs of their own.
timing_lib='small:: lane:: upload:: idle:: budget:: speech:: serve::'
timing_it='votes:: restarts:: trouble:: upload:: hostile:: mirrors:: exchange:: pool:: root:: served::
    shares:: changing:: lifecycle:: limits:: operations:: get:: streams:: root_sessions:: root_reading:: root_identity::
    hardships:: shortage:: first_hour::another at_the_prompt::completion root_client::uploads
    serve:: server_killed:: small_files:: statuses:: resume stubborn:: operate:: root_copy::round_trips wan
    hung:: targets::a_copy targets::a_device third_party::killed third_party::many'
timing_programs='--test stream --test threads --test crowd --test root_crowd --test waiting --test second'
# Those that measure: what scripts/test.sh runs by itself.
measuring=$(sed -n "s/^measuring='\(.*\)'$/\1/p" scripts/test.sh)
[ -n "$measuring" ] || {
    echo 'test-long: scripts/test.sh does not say which tests measure' >&2
    exit 1
}
# Words on purpose.
# shellcheck disable=SC2086
skipped=$(printf -- '--skip %s ' $measuring)

failed=
# `set -e` counts for nothing in what it calls: every command whose failure counts says `|| return 1` there.
step() { # name, command...
    name=$1
    shift
    printf '\n== %s (%s)\n' "$name" "$(date -u +%H:%M:%S)"
    "$@" || {
        failed="$failed $name"
        echo "test-long: $name failed" >&2
    }
}

load=
unload() {
    # stress and those that it has made, which would outlive it.
    [ -z "$load" ] || kill -- "-$load" 2>/dev/null || kill "$load" 2>/dev/null || true
    load=
}
trap unload EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

under_load() { # command...
    setsid stress --quiet --cpu "$(nproc)" &
    load=$!
    "$@" && result=0 || result=$?
    unload
    return "$result"
}

suite() {
    # shellcheck disable=SC2086
    cargo test --workspace --locked --no-fail-fast -- --test-threads 12 $skipped || return 1
}

# Keeps what a round says that fails, and goes on.
once() { # round, what `cargo test` runs...
    round=$1
    shift
    cargo test --quiet --workspace --locked --no-fail-fast "$@" >"$log" 2>&1 </dev/null || {
        cat "$log"
        echo "round $round: $*" >>"$failures"
    }
    echo "round $round of ${LONG_ROUNDS:-20}: $1 $2 ($(date -u +%H:%M:%S))"
}

timing() {
    cargo test --workspace --locked --no-run --quiet || return 1
    : >"$failures" || return 1
    for round in $(seq "${LONG_ROUNDS:-20}"); do
        # Words on purpose.
        # shellcheck disable=SC2086
        once "$round" --lib -- $timing_lib
        # shellcheck disable=SC2086
        once "$round" --test it -- $timing_it $skipped
        # shellcheck disable=SC2086
        once "$round" $timing_programs
    done
    if [ -s "$failures" ]; then
        echo "what failed in ${LONG_ROUNDS:-20} rounds:"
        cat "$failures"
        return 1
    fi
}

rustls() {
    # shellcheck disable=SC2086
    cargo test --workspace --locked --no-default-features --features gridlane-cli/gsi --no-fail-fast -- --test-threads 6 $skipped || return 1
}

fuzz() {
    seed=$(date +%s)
    echo "GRIDLANE_FUZZ_SEED=$seed"
    GRIDLANE_FUZZ_SEED=$seed GRIDLANE_FUZZ_ITERATIONS=${LONG_ITERATIONS:-500000} \
        cargo test --release --locked --package gridlane-fuzz-targets --test smoke || return 1
}

garbage() {
    GRIDLANE_GARBAGE_SECONDS=${LONG_GARBAGE_SECONDS:-600} cargo test --workspace --locked \
        --test it root_garbage || return 1
}

wheel() {
    wheels=$(mktemp -d)
    sh scripts/wheel.sh "$wheels" && cargo build --locked --package gridlane-cli || return 1
    GRIDLANE_BINARY=${CARGO_TARGET_DIR:-target}/debug/gridlane GRIDLANE_WHEEL=$(ls "$wheels"/*.whl) \
        sh scripts/test-python.sh || return 1
    rm -rf "$wheels"
}

restarts() {
    if [ ! -e scripts/stress-restarts.py ]; then
        echo 'test-long: there is no scripts/stress-restarts.py' >&2
        return 1
    fi
    cargo build --release --locked --package gridlane-cli || return 1
    target=${CARGO_TARGET_DIR:-target}
    python3 scripts/stress-restarts.py "$target/release/gridlane" --minutes "${LONG_MINUTES:-30}" \
        --keep "$target/stress-restarts" || return 1
}

log=$(mktemp)
failures=$(mktemp)
trap 'unload; rm -f "$log" "$failures"' EXIT
[ $# -gt 0 ] || set -- suite timing rustls fuzz garbage wheel restarts
for wanted; do
    case $wanted in
    suite | timing) step "$wanted" under_load "$wanted" ;;
    rustls | fuzz | garbage | wheel | restarts) step "$wanted" "$wanted" ;;
    *)
        echo 'usage: scripts/test-long.sh [suite|timing|rustls|fuzz|garbage|wheel|restarts]...' >&2
        exit 2
        ;;
    esac
done
[ -z "$failed" ] || {
    echo "test-long: failed:$failed" >&2
    exit 1
}
echo 'All of it passed.'
