#!/bin/sh
# Installs what `make build` made: the binary without its symbols, the manual pages, and completion for bash, zsh and fish; and, if
# `make capi` was run, the C library with its header and its file for pkg-config.
#
#   scripts/install.sh install GRIDLANE     GRIDLANE: the binary, as it was built, with the library beside it
#   scripts/install.sh library DIRECTORY    only the library, which was built in DIRECTORY
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
header=$to/include/gridlane.h
libraries=$to/lib
# GRIDLANE_ABI_MAJOR, which crates/capi/build.rs names the library by.
soname=libgridlane.so.1
sources=$(cd "$(dirname "$0")/.." && pwd)

complain() {
    echo "install: $*" >&2
    exit 1
}

without_symbols() { # option file
    if command -v strip >/dev/null 2>&1; then
        strip "$@"
    else
        echo 'install: there is no strip (package binutils): what is installed keeps its symbols' >&2
    fi
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$sources/Cargo.toml" | head -n 1)

# Whether the library that was built in a directory is of this source; `make capi` keeps beside it what tells.
look_at_library() { # directory
    [ -f "$1/libgridlane_capi.so" ] || complain "there is no $1/libgridlane_capi.so: run 'make capi' first"
    [ ! -f "$1/gridlane.h" ] || cmp -s "$1/gridlane.h" "$sources/crates/capi/include/gridlane.h" ||
        complain "$1/libgridlane_capi.so was built with another header than this one: run 'make capi' again, or remove it"
    [ ! -f "$1/gridlane.version" ] || [ "$(cat "$1/gridlane.version")" = "$version" ] ||
        complain "$1/libgridlane_capi.so is of version $(cat "$1/gridlane.version"): run 'make capi' again, or remove it"
}

# The library that was built in a directory, with its header and its file for pkg-config. Each beside its place first, then renamed:
# a program that has it loaded keeps the old one.
install_library() { # directory
    look_at_library "$1"
    install -d "$libraries/pkgconfig" "$(dirname "$header")"
    install -m 755 "$1/libgridlane_capi.so" "$libraries/$soname.new"
    without_symbols --strip-unneeded "$libraries/$soname.new"
    mv -f "$libraries/$soname.new" "$libraries/$soname"
    ln -sf "$soname" "$libraries/libgridlane.so"
    if [ -f "$1/libgridlane_capi.a" ]; then
        install -m 644 "$1/libgridlane_capi.a" "$libraries/libgridlane.a.new"
        without_symbols --strip-debug "$libraries/libgridlane.a.new"
        mv -f "$libraries/libgridlane.a.new" "$libraries/libgridlane.a"
    fi
    install -m 644 "$sources/crates/capi/include/gridlane.h" "$header"
    cat >"$libraries/pkgconfig/gridlane.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: gridlane
Description: reads remote files over http, https and root://, from one replica or several
Version: $version
Libs: -L\${libdir} -lgridlane
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
Cflags: -I\${includedir}
END
    echo "installed $libraries/$soname and $header"
}

case ${1-} in
library)
    [ -n "${2-}" ] || complain 'a directory is missing'
    install_library "$2"
    ;;
install)
    built=${2-}
    [ -n "$built" ] && [ -x "$built" ] || complain "there is no $built: run 'make build' first. If CARGO_TARGET_DIR was set for" \
        "that, name it here too, for sudo takes it away: sudo make install CARGO_TARGET_DIR=DIRECTORY"
    # Before anything is in its place.
    [ ! -f "$(dirname "$built")/libgridlane_capi.so" ] || look_at_library "$(dirname "$built")"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    cp "$built" "$work/gridlane"
    without_symbols "$work/gridlane"
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
    [ ! -f "$(dirname "$built")/libgridlane_capi.so" ] || install_library "$(dirname "$built")"
    echo "installed $bin, $(find "$work/man" -name '*.1' | wc -l) manual pages, and completion for bash, zsh and fish"
    case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) [ -n "${DESTDIR-}" ] || echo "to find it: PATH=$prefix/bin:\$PATH" ;;
    esac
    ;;
uninstall)
    rm -f "$bin" "$pages"/gridlane.1 "$pages"/gridlane-*.1 "$bash" "$zsh" "$fish"
    rm -f "$header" "$libraries/$soname" "$libraries/libgridlane.so" "$libraries/libgridlane.a" "$libraries/pkgconfig/gridlane.pc"
    echo "removed gridlane from $to"
    ;;
*)
    echo 'usage: scripts/install.sh install GRIDLANE | library DIRECTORY | uninstall' >&2
    exit 2
    ;;
esac
