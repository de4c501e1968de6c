# Sourced by the other scripts: finds cargo and the programs that distributions keep out of a user's PATH.
# Changes nothing but PATH, and says where the Pythons of the lab and of the tests are.

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

# The interpreter with what the lab needs, which scripts/bootstrap.sh --lab installs.
# shellcheck disable=SC2034
lab_python=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test/lab/bin/python

# The programs that build the Python package, and what its tests read with: scripts/bootstrap.sh --wheel and --test install them.
# shellcheck disable=SC2034
wheel_tools=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test/maturin-1/bin
# shellcheck disable=SC2034
python_readers=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test/python-1
# uproot's own tests, of the version that is installed.
uproot_version=$(sed -n 's/^uproot==\([^ ;]*\).*/\1/p' scripts/pins/python.txt)
# shellcheck disable=SC2034
uproot_source=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test/sources/uproot-$uproot_version
# The interpreter that has C++ ROOT, for x86_64 only.
# shellcheck disable=SC2034
root_python=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test/root-1/bin/python

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
if ! cargo_is_recent; then
    PATH=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH
fi
export PATH
