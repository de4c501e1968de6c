#!/bin/sh
# Lets libFuzzer look for inputs that fail, target by target, for FUZZ_SECONDS (60) each. Needs a nightly
# compiler, a C++ compiler and cargo-fuzz, none of which anything else here needs: what is missing is said, not
# installed.
#
#   scripts/fuzz.sh                     every target
#   scripts/fuzz.sh smuggling chunked   these
#
# What fails is kept in fuzz/artifacts, what was found worth keeping in fuzz/corpus. docs/guides/fuzzing.md.
set -eu
cd "$(dirname "$0")/.."
. scripts/env.sh

complain() {
    echo "fuzz: $*" >&2
    exit 1
}
command -v cargo-fuzz >/dev/null 2>&1 || complain 'cargo-fuzz is not there: cargo install cargo-fuzz'
cargo +nightly --version >/dev/null 2>&1 || complain 'no nightly compiler: rustup toolchain install nightly'
command -v c++ >/dev/null 2>&1 || complain 'no C++ compiler, which libFuzzer wants: the package g++'

# Words on purpose.
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)
cargo run --quiet --locked --package gridlane-fuzz-targets -- fuzz
failed=
for target; do
    printf '\n== %s\n' "$target"
    # There is no unsafe code to find faults in with a sanitizer: it would only be slower.
    (cd fuzz && cargo +nightly fuzz run --sanitizer none "$target" -- -dict="$target.dict" -max_len=4096 \
        -timeout=20 -rss_limit_mb=2048 -max_total_time="${FUZZ_SECONDS:-60}" -print_final_stats=1) ||
        failed="$failed $target"
done
[ -z "$failed" ] || complain "failed:$failed; the inputs are in fuzz/artifacts"
