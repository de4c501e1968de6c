#!/bin/sh
# Writes down again what scripts/bootstrap.sh may fetch from the network, by the SHA-256 digests of the files: run it
# when a version in scripts/pins/*.in has changed, or for a newer rustup, look at the difference, and commit it.
#
#   scripts/pin.sh                 the packages from PyPI: scripts/pins/NAME.txt of each NAME.in
#   scripts/pin.sh rustup VERSION  the installer of Rust: scripts/pins/rustup-init
#
# Needs a network, and for PyPI python3 with venv: uv, which it installs into a directory of its own and removes, resolves
# for every Python from 3.10 on (3.11 for python.in and root.in) and every platform at once.
set -eu
cd "$(dirname "$0")/pins"

complain() {
    echo "pin: $*" >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

case ${1-} in
'')
    python3 -m venv "$work/uv"
    "$work/uv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: uv
    for wanted in *.in; do
        name=${wanted%.in}
        echo "# Written by \`scripts/pin.sh\` from $wanted; do not edit by hand." >"$work/$name.txt"
        # The newest of these are for newer ones.
        case $name in python | root) oldest=3.11 ;; *) oldest=3.10 ;; esac
        "$work/uv/bin/uv" pip compile --quiet --universal --python-version "$oldest" --only-binary :all: \
            --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$wanted" >>"$work/$name.txt"
        mv "$work/$name.txt" "$name.txt"
        echo "$name: $(grep -c '^[a-z]' "$name.txt") packages"
    done
    ;;
rustup)
    version=${2-}
    [ -n "$version" ] || complain 'which version of rustup?'
    {
        echo '# Written by `scripts/pin.sh rustup VERSION`; do not edit by hand. Digest, version, target of rustup-init.'
        for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu; do
            from=https://static.rust-lang.org/rustup/archive/$version/$target/rustup-init
            curl --proto '=https' --tlsv1.2 --silent --show-error --fail --output "$work/rustup-init" "$from"
            said=$(curl --proto '=https' --tlsv1.2 --silent --show-error --fail "$from.sha256")
            digest=$(sha256sum "$work/rustup-init")
            digest=${digest%% *}
            [ "${said%% *}" = "$digest" ] || complain "$from has the digest $digest, and its publisher says ${said%% *}"
            echo "$digest $version $target"
        done
    } >"$work/pinned"
    mv "$work/pinned" rustup-init
    ;;
*)
    echo 'usage: scripts/pin.sh [rustup VERSION]' >&2
    exit 2
    ;;
esac
