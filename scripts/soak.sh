#!/bin/sh
# Copies of every kind beside tokens that last for 20 seconds and are renewed on the way: ten minutes of what `make test` does
# for one. Prints how many copies there were, and how late each of the slow ones was.
#
# SOAK_SECONDS: another time, of at least 30.
set -eu
cd "$(dirname "$0")/.."
GRIDLANE_SOAK_SECONDS=${SOAK_SECONDS:-600}
[ "$GRIDLANE_SOAK_SECONDS" -ge 30 ] 2>/dev/null || {
    echo "soak: SOAK_SECONDS has to be a whole number of at least 30, and is $GRIDLANE_SOAK_SECONDS" >&2
    exit 2
}
export GRIDLANE_SOAK_SECONDS
sh scripts/bootstrap.sh --test
. scripts/env.sh
exec cargo test --locked --package gridlane-cli --test it renewal:: -- --nocapture
