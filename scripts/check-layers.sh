#!/bin/sh
# Proves the direction of dependencies (ARCHITECTURE.md): what each crate may use of the others; that the
# pure crates pull in no runtime, no socket and no clock; that unsafe code is in one crate, and where C's pointers are.
set -eu
cd "$(dirname "$0")/.."
. scripts/env.sh

failed=0
complain() {
    echo "layers: $*" >&2
    failed=1
}

# What cargo says of a crate's dependencies: name and version, one a line. Silence is no proof of anything.
tree() { # crate options
    crate=$1
    shift
    found=$(cargo tree --locked --package "gridlane-$crate" --edges normal --prefix none "$@") || found=
    case $found in
    "gridlane-$crate "*) printf '%s\n' "$found" ;;
    *)
        echo "layers: cargo does not list what crates/$crate depends on; what it says about that is above" >&2
        return 1
        ;;
    esac
}

# --- Allowed dependencies ---------------------------------------------------------------------------
# pure <- platform (sys, share, config, net, store, wan) <- peer <- engine <- services <- edge. A crate that is not here fails.
allowed() {
    case $1 in
    core) echo ;;
    dav | plan | xrd) echo core ;;
    read) echo core plan ;;
    auth) echo core dav ;;
    gsi) echo auth core dav ;;
    sys) echo ;;
    share) echo core sys ;;
    config) echo core ;;
    net) echo core auth sys ;;
    store) echo core sys share ;;
    wan) echo core sys ;;
    peer) echo core dav xrd auth gsi sys net ;;
    engine) echo core dav plan read xrd auth sys share net store peer ;;
    client) echo core dav plan read xrd auth sys share net store peer engine ;;
    delegation) echo core auth net sys ;;
    jobs) echo core ;;
    dispatch) echo core jobs ;;
    jobstore) echo core auth net sys delegation jobs ;;
    front) echo core dav xrd auth gsi sys share net store ;;
    server) echo core dav xrd auth sys share net store peer engine client front ;;
    cli) echo core config dav plan read xrd auth gsi sys share net store peer engine client front server wan ;;
    py) echo core dav read share net peer client engine store ;;
    capi) echo core sys net peer engine client ;;
    *) return 1 ;;
    esac
}

for manifest in crates/*/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    if ! may=$(allowed "$crate"); then
        complain "crates/$crate has no place in the table of scripts/check-layers.sh"
        continue
    fi
    direct=$(tree "$crate" --depth 1)
    uses=$(echo "$direct" | sed -n '2,$s/^gridlane-\([a-z-]*\) .*/\1/p' | sort -u)
    for used in $uses; do
        case " $may " in
        *" $used "*) ;;
        *) complain "crates/$crate must not use crates/$used" ;;
        esac
    done
done

# --- Pure means pure ------------------------------------------------------------------------------
impure='tokio|mio|socket2|rustix|nix|hyper|rustls|ring|async-std|async-io|smol|polling|futures-executor|reqwest'
effects='std::(net::(Tcp|Udp)|fs\b|thread|process)|(Instant|SystemTime)::now|std::os::unix::net'
for crate in core dav plan read xrd auth jobs dispatch; do
    all=$(tree "$crate")
    # On one line.
    # shellcheck disable=SC2086
    found=$(echo "$all" | sed 's/ .*//' | sort -u | grep -xE "$impure" || true)
    # Its arithmetic is what auth is made for; randomness is an argument there.
    [ "$crate" != auth ] || found=$(echo "$found" | grep -vx ring || true)
    # shellcheck disable=SC2086
    [ -z "$found" ] || complain "crates/$crate is pure, but pulls in" $found
    found=$(grep -rnE "$effects" "crates/$crate/src" || true)
    [ -z "$found" ] || complain "crates/$crate is pure, but touches the world:
$found"
done

# --- Unsafe code ----------------------------------------------------------------------------------
for manifest in crates/*/Cargo.toml fuzz/targets/Cargo.toml; do
    dir=$(dirname "$manifest")
    [ "$dir" = crates/sys ] && continue
    grep -A1 -x '\[lints\]' "$manifest" | grep -qx 'workspace = true' ||
        complain "$manifest does not take the workspace's lints"
    found=$(grep -rnE '(^|[^_[:alnum:]"])unsafe +(\{|fn|impl|extern|trait)|allow\(unsafe_code' "$dir" --include='*.rs' || true)
    # The functions that C calls, and the caller's memory.
    found=$(echo "$found" | grep -vE '^crates/capi/src/(abi|memory)\.rs:' || true)
    [ -z "$found" ] || complain "unsafe code outside crates/sys:
$found"
done

[ $failed = 0 ] && echo "layers: every crate keeps to its layer"
exit $failed
