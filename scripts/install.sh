#!/bin/sh
# Installs what `make build` made: the binary without its symbols, the manual pages, and completion for bash, zsh and fish.
#
#   scripts/install.sh install GRIDLANE     GRIDLANE: the binary, as it was built
#   scripts/install.sh uninstall
#
#   PREFIX=DIRECTORY    where to [default: /usr/local]
#   DESTDIR=DIRECTORY   put in front of PREFIX, for packages: what is installed does not know it
#
# Nothing is compiled and nothing fetched, so that it may run as root: make build && sudo make install
set -eu
prefix=${PREFIX:-/usr/local}
to=${DESTDIR-}$prefix
bin=$to/bin/gridlane
pages=$to/share/man/man1
bash=$to/share/bash-completion/completions/gridlane
zsh=$to/share/zsh/site-functions/_gridlane
fish=$to/share/fish/vendor_completions.d/gridlane.fish

complain() {
    echo "install: $*" >&2
    exit 1
}

case ${1-} in
install)
    built=${2-}
    [ -n "$built" ] && [ -x "$built" ] || complain "there is no $built: run 'make build' first. If CARGO_TARGET_DIR was set for" \
        "that, name it here too, for sudo takes it away: sudo make install CARGO_TARGET_DIR=DIRECTORY"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    cp "$built" "$work/gridlane"
    if command -v strip >/dev/null 2>&1; then
        strip "$work/gridlane"
    else
        echo 'install: there is no strip (package binutils): the binary keeps its symbols' >&2
    fi
    # The one that was built: nothing may be run from a /tmp that is mounted noexec.
    "$built" man "$work/man"
    # Beside its place first, then renamed: a gridlane that is running stays whole.
    install -d "$to/bin" "$pages" "$(dirname "$bash")" "$(dirname "$zsh")" "$(dirname "$fish")"
    install -m 755 "$work/gridlane" "$bin.new"
    mv -f "$bin.new" "$bin"
    # What an older one had and this one has not.
    rm -f "$pages"/gridlane.1 "$pages"/gridlane-*.1
    install -m 644 "$work/man"/*.1 "$pages/"
    for shell in bash zsh fish; do
        "$built" completion $shell >"$work/$shell"
    done
    install -m 644 "$work/bash" "$bash"
    install -m 644 "$work/zsh" "$zsh"
    install -m 644 "$work/fish" "$fish"
    echo "installed $bin, $(find "$work/man" -name '*.1' | wc -l) manual pages, and completion for bash, zsh and fish"
    case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) [ -n "${DESTDIR-}" ] || echo "to find it: PATH=$prefix/bin:\$PATH" ;;
    esac
    ;;
uninstall)
    rm -f "$bin" "$pages"/gridlane.1 "$pages"/gridlane-*.1 "$bash" "$zsh" "$fish"
    echo "removed gridlane from $to"
    ;;
*)
    echo 'usage: scripts/install.sh install GRIDLANE | uninstall' >&2
    exit 2
    ;;
esac
