#!/bin/sh
# Runs scenarios of lab/scenarios in their quick size (or LAB_SIZE), one after the other, each with its report:
# lab-quick.sh PYTHON GRIDLANE [NAME...]. Without names, those of the published experiments; the name of a directory, all in it.
#
# A scenario that fails does not keep the others from running; the exit code says that one did.
set -eu
cd "$(dirname "$0")/.."
python=$1 binary=$2
shift 2
export PYTHONPATH="$PWD/lab/src"
results=lab/results/$(date +%Y%m%dT%H%M%S)
mkdir -p "$results"
cd lab/scenarios
# Words on purpose.
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(grep -l '^published_figure' -- *.toml | sed 's/[.]toml$//')
names=
for name; do
    [ -d "$name" ] || {
        names="$names $name"
        continue
    }
    for file in "$name"/*.toml; do names="$names ${file%.toml}"; done
done
cd ../..
started=$(date +%s)
failed=
for name in $names; do
    printf '\n== %s (at %s s)\n' "$name" "$(($(date +%s) - started))"
    "$python" -m gridlane_lab run "lab/scenarios/$name.toml" --size "${LAB_SIZE:-quick}" --gridlane "$binary" --out "$results/$name" || {
        code=$?
        [ $code != 130 ] || exit $code
        failed="$failed $name"
    }
done
printf '\nReports after %s s:\n' "$(($(date +%s) - started))"
for name in $names; do
    [ ! -e "$results/$name/report/index.html" ] || echo "    $results/$name/report/index.html"
done
[ -z "$failed" ] || {
    echo "not as they should be:$failed" >&2
    exit 10
}
