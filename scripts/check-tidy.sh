#!/bin/sh
# Checks of style that need no compiler: sizes of files, unfinished or skipped work, paths of a person's machine, links
# between documents with their headings, paths of the crates, the changelog, figures and runs that documents promise,
# and the data files' checksums. Git lists the files.
set -eu
cd "$(dirname "$0")/.."

lines_max=1000
failed=0
complain() {
    echo "tidy: $*" >&2
    failed=1
}

# Tracked and new files; names with spaces are not used here.
if ! listed=$(git ls-files --cached --others --exclude-standard); then
    echo "tidy: git does not list the files of $(pwd); what it says about that is above" >&2
    echo 'tidy: run this in a git clone that belongs to the user who runs it' >&2
    exit 1
fi
files() { # patterns of names, as the shell has them
    for file in $listed; do
        for pattern in "$@"; do
            # Patterns on purpose.
            # shellcheck disable=SC2254
            case $file in
            $pattern) [ ! -f "$file" ] || echo "$file" ;;
            esac
        done
    done
}
if [ -z "$(files 'scripts/check-tidy.sh')" ]; then
    echo "tidy: git knows no files in $(pwd): a directory that another repository ignores?" >&2
    echo 'tidy: run this in a git clone' >&2
    exit 1
fi

for file in $(files '*.rs' '*.py' '*.sh' '*.md' '*.toml' Makefile); do
    lines=$(wc -l <"$file")
    # What a program writes is as long as what it has to say.
    [ "$lines" -le $lines_max ] || head -n 5 "$file" | grep -q '^Written by `.*`; do not edit by hand' ||
        complain "$file has $lines lines: split it by meaning"
    ! grep -q "$(printf '\r')" "$file" || complain "$file has Windows line ends"
    ! grep -nE '[[:blank:]]+$' "$file" || complain "$file has blanks at line ends"
done

# This file names what it looks for; it is the only one that may.
sources=$(files '*.rs' '*.py' '*.sh' '*.md' '*.toml' Makefile | grep -vx 'scripts/check-tidy.sh')
look_for() { # what pattern
    # Words on purpose.
    # shellcheck disable=SC2086
    found=$(grep -nE "$2" $sources /dev/null || true)
    [ -z "$found" ] || complain "$1:
$found"
}
look_for 'unfinished' '\b(TODO|FIXME|XXX)\b|(todo|unimplemented)!\('
look_for 'skipped tests' '#\[ignore|pytest\.skip|unittest\.skip'
sources=$(echo "$sources" | grep -v '\.rs$') # tests may make up paths
look_for "a path of a person's machine" '(^|[^[:alnum:]])/(home|Users)/[a-z]'

# Below the command line, what names an option or a command of it is a value (`gridlane_core::Hint`), which
# crates/cli/src/words.rs words.
below=$(files 'crates/*/src/*.rs' | grep -vE '^crates/cli/|/tests\.rs$|/tests/')
commands='auth|cat|checksum|completion|cp|df|doctor|ls|man|mkdir|mv|pki|probe|rm|serve|stat|wan'
# Words on purpose.
# shellcheck disable=SC2086
found=$(grep -nE "(^|[^-[:alnum:]])--[a-z][a-z]|gridlane ($commands)\b" $below | grep -vE '^[^:]*:[0-9]+: *//' || true)
[ -z "$found" ] || complain "an option or a command of the command line in a text below it:
$found"

# Links between documents: [text](path#anchor).
for file in $(files '*.md'); do
    dir=$(dirname "$file")
    for link in $(grep -oE '\]\([^)[:blank:]]+\)' "$file" | sed 's/^](//; s/)$//; s/#.*//'); do
        case $link in
        '' | http://* | https://* | mailto:*) ;;
        *) [ -e "$dir/$link" ] || complain "$file links to $link, which is not there" ;;
        esac
    done
done

# Anchors of links in these: the heading that they name, as GitHub writes it.
anchors() { # file
    sed '/^```/,/^```/d' "$1" | sed -n 's/^##* //p' | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
for file in $(files '*.md'); do
    dir=$(dirname "$file")
    for link in $(grep -oE '\]\([^)[:blank:]]*#[^)[:blank:]]+\)' "$file" | sed 's/^](//; s/)$//'); do
        case $link in
        http://* | https://*) continue ;;
        '#'*) page=$file ;;
        *) page=$dir/${link%%#*} ;;
        esac
        [ ! -f "$page" ] || anchors "$page" | grep -qxF -e "${link#*#}" || complain "$file links to $link, a heading that is not there"
    done
done

# Paths of the crates, in documents, comments and scripts: each exists. CHANGELOG.md may name older ones.
# Words on purpose.
# shellcheck disable=SC2086
named=$(grep -noE '\bcrates/[a-z]+/[A-Za-z0-9_/.-]+' $(files '*.rs' '*.py' '*.sh' '*.md' '*.toml' Makefile | grep -vx CHANGELOG.md) /dev/null |
    sed 's/[.]$//' | sort -u)
for path in $(echo "$named" | sed 's/^[^:]*:[0-9]*://' | sort -u); do
    [ -e "$path" ] || complain "a path that is not there:
$(echo "$named" | grep -F ":$path")"
done

# What `make demo` printed, and what `make bench` measured.
sed -n '/^<!-- demo output -->$/,/^<!-- \/demo output -->$/p' README.md | grep -qE '^ *three replicas .* same( |$)' ||
    complain "README.md shows no run between its '<!-- demo output -->' marks: put there what 'make demo' prints"
grep -qE '^\| GET https .*\| +[0-9.]+ +\|' docs/performance/loopback.md ||
    complain "docs/performance/loopback.md has no table of figures: 'make bench' writes it"
grep -qE '^\| gridlane cp from nginx \| +[0-9.]+' docs/performance/wan.md ||
    complain "docs/performance/wan.md has no table of figures any more"
grep -qE '^\| full handshakes, ECDSA P-256 \| +[0-9]+' docs/performance/auth.md ||
    complain "docs/performance/auth.md has no table of figures: 'make bench-auth' writes it"
grep -qE '^one stream, BBR.* ok$' docs/performance/wan-check.md ||
    complain "docs/performance/wan-check.md does not show what 'gridlane wan check' prints"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
grep -qF "## [$version]" CHANGELOG.md || complain "CHANGELOG.md has no section for $version"

(cd demo/data && sha256sum --check --quiet SHA256SUMS) || complain 'demo/data is not what SHA256SUMS says'
for file in demo/data/*; do
    name=$(basename "$file")
    case $name in
    README.md | SHA256SUMS) ;;
    *) grep -qF "$name" demo/data/README.md || complain "demo/data/README.md does not say where $name comes from" ;;
    esac
done

[ $failed = 0 ] && echo 'tidy: nothing to complain about'
exit $failed
