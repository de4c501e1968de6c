# Sourced by the other scripts: finds cargo and the programs that distributions keep out of a user's PATH.
# Changes nothing but PATH.

# The oldest cargo that can build this; the same number stands in Cargo.toml as rust-version.
cargo_minor_min=95

# Whether the cargo in PATH runs here and is new enough. One that rustup manages follows rust-toolchain.toml.
cargo_is_recent() {
    command -v cargo >/dev/null 2>&1 || return 1
    version=$(cargo --version 2>/dev/null) || return 1
    version=${version#cargo 1.}
    minor=${version%%.*}
    case $minor in '' | *[!0-9]*) return 1 ;; esac
    [ "$minor" -ge "$cargo_minor_min" ]
}

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
if ! cargo_is_recent; then
    PATH=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH
fi
export PATH
