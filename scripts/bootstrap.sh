#!/bin/sh
# Sees to everything that building, testing, the demo or the benchmarks need. Safe to run again: when
# nothing is missing it does nothing and says nothing.
#
#   scripts/bootstrap.sh            a compiler and Rust: enough for `make build`
#   scripts/bootstrap.sh --demo     and what `make demo` needs
#   scripts/bootstrap.sh --test     and what `make test` needs
#   scripts/bootstrap.sh --test-long and what `make test-long` needs
#   scripts/bootstrap.sh --wheel    and what `make wheel` needs
#   scripts/bootstrap.sh --bench    and what `make bench` needs
#   scripts/bootstrap.sh --bench-trees and what `make bench-trees` needs
#   scripts/bootstrap.sh --bench-root and what `make bench-root` needs
#   scripts/bootstrap.sh --bench-auth and what `make bench-auth` needs
#   scripts/bootstrap.sh --bench-gsi  and what `make bench-gsi` needs
#   scripts/bootstrap.sh --bench-wan and what `make bench-wan` needs
#   scripts/bootstrap.sh --bench-tpc and what `make bench-tpc` needs
#   scripts/bootstrap.sh --bench-read and what `make bench-read` needs
#   scripts/bootstrap.sh --lab      and what `make lab-quick` and `make lab-own` need
#
# As root, or with sudo that asks for no password, it installs Debian or Ubuntu packages; else it says which
# are missing and stops. Rust comes from the cargo that is there, if it is recent enough, else from the package
# rustup, else (there is none, or the distribution's cargo is installed, which it excludes) from rustup's own
# site for this user; rust-toolchain.toml says which version.
#
# What does not come from the distribution is fetched by digest: rustup's installer as scripts/pins/rustup-init says, what
# comes from PyPI as scripts/pins/*.txt say. scripts/pin.sh writes these again.
#
# For Debian 12 and 13, Ubuntu 22.04 and 24.04, starting from git and a shell. The other packages:
#   gcc libc6-dev make   the linker, and a C compiler for the crate ring
#   libssl-dev pkg-config
#                        the OpenSSL that logins by certificate over root:// (gsi) are made with
#   ca-certificates      cargo fetches crates over https
#   curl                 fetches Rust's installer; client of the tests; asks for copies in `make bench-tpc`
#   nginx                server of tests and benchmarks; its modules ssl and dav, which the package has everywhere
#   g++ pkg-config       compile the program that tries the C library, as C++ as well
#   openssl              one test has it read the certificate that the server makes
#   python3              runs the demo and the benchmarks, whose arithmetic is tested
#   aria2                client of the tests and the benchmarks
#   davix davix-tests gfal2-util-scripts gfal2-plugin-http gfal2-plugin-file rclone litmus cadaver
#                        clients of the tests: what the field uses
#   apache2-bin          WebDAV server of the tests and benchmarks
#   xrootd-client        xrdcp and xrdfs, clients of the tests; its xrdadler32 keeps checksums in attributes, which tests read
#   xrootd-server        server of the tests; as root it works as the user xrootd, which the package makes
#   gfal2-plugin-xrootd python3-xrootd
#                        clients of the tests over root://
#   voms-clients         makes the proxies with VOMS attributes that the tests show, and reads ours
#   voms-server voms-mysql-plugin mariadb-server-core
#                        gives attributes in the tests; its database needs no more of MariaDB, and no service is started
#   xrootd-voms-plugins xrootd-scitokens-plugins
#                        let the server of the tests know proxies and tokens; macaroons and ztn it knows without them
#   scitokens-cpp        makes and verifies tokens for the tests
#   oidc-agent-cli       gives tokens of its accounts to the tests
#   python3-pymacaroons  reads and attenuates macaroons for the tests
#   apache2-utils        its htpasswd hashes passwords for the tests
#   python3-venv         for what the tests fetch from PyPI into the user's cache: WsgiDAV, a server; uproot and a newer
#                        client of XRootD; fsspec; SciTokens; the readers that the Python package is tried with; C++ ROOT; maturin
#   iproute2             configures the network namespaces of `gridlane wan`; its ss tells of buffers in `make bench`, and counts
#                        connections in `make bench-wan` and the lab
#   stress               keeps the machine busy in `make test-long`
#   strace               counts the system calls of what the tests run
#   globus-gass-copy-progs globus-gridftp-server-progs gfal2-plugin-gridftp iperf3
#                        GridFTP's client and server, and raw network figures, in the lab and its tests
#   postgresql           a store that the lab's tests start by themselves
#   python3.11           for the lab, where python3 is older
#   xrootd-server xrootd-client   peers of `make bench`, `make bench-wan`, `make bench-root`, `make bench-tpc` and
#                        `make bench-read`
#   apache2-bin davix rclone wrk openssl   peers and tools of `make bench`
set -eu
cd "$(dirname "$0")/.."
. scripts/env.sh

case ${1-} in
'' | --demo | --test | --test-long | --wheel | --bench | --bench-trees | --bench-root | --bench-auth | --bench-gsi | --bench-wan | --bench-tpc | --bench-read | --lab) purpose=${1-} ;;
*)
    echo "usage: scripts/bootstrap.sh [--demo|--test|--test-long|--wheel|--bench|--bench-trees|--bench-root|--bench-auth|--bench-gsi|--bench-wan|--bench-tpc|--bench-read|--lab]" >&2
    exit 2
    ;;
esac

say() { echo "bootstrap: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- Packages -------------------------------------------------------------------------------------

packages=
need() { # command package
    have "$1" || packages="$packages $2"
}

compiles() { printf '#include <stdio.h>\n' | cc -E -x c - >/dev/null 2>&1; }

# Its headers, for the crate openssl.
has_openssl() { printf '#include <openssl/opensslv.h>\n' | cc -E -x c - >/dev/null 2>&1; }

has_authorities() {
    for file in "${SSL_CERT_FILE-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        [ ! -s "$file" ] || return 0
    done
    return 1
}

# Whether something fits a pattern, which is expanded here.
has_file() {
    for file in $1; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

add_once() { # package, which another line may need as well
    case " $packages " in *" $1 "*) ;; *) packages="$packages $1" ;; esac
}

need_once() { # command package
    have "$1" || add_once "$2"
}

need_file() { # pattern package
    has_file "$1" || add_once "$2"
}

# An interpreter for the lab; nothing where there is none yet.
python_for_lab() {
    for python in /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
        if "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
}

need_lab_python() {
    [ -z "$(python_for_lab)" ] || return 0
    if /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        add_once python3-venv
    else
        packages="$packages python3.11 python3.11-venv"
    fi
}

# Servers and tools of the lab, in its tests as in its scenarios.
need_lab() {
    need_once curl curl
    need_once python3 python3
    need_once openssl openssl
    need_once ip iproute2
    need_once nginx nginx
    need_once apache2 apache2-bin
    need_once xrootd xrootd-server
    need_once xrdcp xrootd-client
    need_once aria2c aria2
    need_once davix-get davix
    need_once rclone rclone
    need_once gfal-copy gfal2-util-scripts
    need_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_http.so' gfal2-plugin-http
    need_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_file.so' gfal2-plugin-file
    need_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_xrootd.so' gfal2-plugin-xrootd
    need_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_gridftp.so' gfal2-plugin-gridftp
    need_once globus-url-copy globus-gass-copy-progs
    need_once globus-gridftp-server globus-gridftp-server-progs
    need_once iperf3 iperf3
    /usr/bin/python3 -c 'import XRootD' 2>/dev/null || add_once python3-xrootd
    need_lab_python
}

need git git
need make make
need cc gcc
compiles || packages="$packages libc6-dev"
have pkg-config || packages="$packages pkg-config"
has_openssl || packages="$packages libssl-dev"
has_authorities || packages="$packages ca-certificates"
cargo_is_recent || have rustup || need curl curl
case $purpose in
--demo) need python3 python3 ;;
--wheel)
    need python3 python3
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || packages="$packages python3-venv"
    ;;
--test | --test-long)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need nginx nginx
    need openssl openssl
    need c++ g++
    need_once pkg-config pkg-config
    need ip iproute2
    need python3 python3
    need xrdadler32 xrootd-client
    need xrootd xrootd-server
    need oidc-agent oidc-agent-cli
    need aria2c aria2
    need davix-get davix
    need davix-tester davix-tests
    need gfal-copy gfal2-util-scripts
    has_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_http.so' || packages="$packages gfal2-plugin-http"
    has_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_file.so' || packages="$packages gfal2-plugin-file"
    has_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_xrootd.so' || packages="$packages gfal2-plugin-xrootd"
    /usr/bin/python3 -c 'import XRootD' 2>/dev/null || packages="$packages python3-xrootd"
    need voms-proxy-fake voms-clients
    need voms voms-server
    has_file /usr/lib/voms/libvomsmysql.so || packages="$packages voms-mysql-plugin"
    if grep -q '^VERSION_ID="22.04"' /etc/os-release 2>/dev/null; then
        need mariadbd mariadb-server-core-10.6
    else
        need mariadbd mariadb-server-core
    fi
    has_file '/usr/lib/*/libXrdVoms-*.so' || packages="$packages xrootd-voms-plugins"
    has_file '/usr/lib/*/libXrdAccSciTokens-*.so' || packages="$packages xrootd-scitokens-plugins"
    need scitokens-create scitokens-cpp
    /usr/bin/python3 -c 'import pymacaroons' 2>/dev/null || packages="$packages python3-pymacaroons"
    need htpasswd apache2-utils
    need rclone rclone
    need litmus litmus
    need strace strace
    need cadaver cadaver
    need apache2 apache2-bin
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || packages="$packages python3-venv"
    [ "$purpose" = --test ] || need stress stress
    need_lab
    need_file '/usr/lib/postgresql/*/bin/initdb' postgresql
    ;;
--lab) need_lab ;;
--bench)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need python3 python3
    need nginx nginx
    need apache2 apache2-bin
    need xrootd xrootd-server
    need xrdfs xrootd-client
    need openssl openssl
    need aria2c aria2
    need davix-get davix
    need rclone rclone
    need wrk wrk
    need ss iproute2
    ;;
--bench-trees)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need python3 python3
    need nginx nginx
    need rclone rclone
    need apache2 apache2-bin
    ;;
--bench-root)
    need python3 python3
    need openssl openssl
    need xrootd xrootd-server
    need xrdcp xrootd-client
    ;;
--bench-auth)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need python3 python3
    need nginx nginx
    need openssl openssl
    need htpasswd apache2-utils
    need voms-proxy-fake voms-clients
    ;;
--bench-gsi)
    need python3 python3
    need openssl openssl
    need xrootd xrootd-server
    need voms-proxy-fake voms-clients
    ;;
--bench-tpc)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need python3 python3
    need openssl openssl
    need ip iproute2
    need xrootd xrootd-server
    need xrdcp xrootd-client
    ;;
--bench-read)
    need python3 python3
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || packages="$packages python3-venv"
    need openssl openssl
    need ip iproute2
    need xrootd xrootd-server
    need xrdfs xrootd-client
    /usr/bin/python3 -c 'import XRootD' 2>/dev/null || packages="$packages python3-xrootd"
    need_lab_python
    ;;
--bench-wan)
    case $packages in *' curl'*) ;; *) need curl curl ;; esac
    need python3 python3
    need nginx nginx
    need openssl openssl
    need ip iproute2
    need aria2c aria2
    need xrootd xrootd-server
    need xrdcp xrootd-client
    need rclone rclone
    need gfal-copy gfal2-util-scripts
    has_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_http.so' || packages="$packages gfal2-plugin-http"
    has_file '/usr/lib/*/gfal2-plugins/libgfal_plugin_file.so' || packages="$packages gfal2-plugin-file"
    ;;
esac

if [ "$(id -u)" = 0 ]; then
    as_root() { "$@"; }
    may_install=yes
elif have sudo && sudo -n true 2>/dev/null; then
    as_root() { sudo -n "$@"; }
    may_install=yes
else
    may_install=no
fi
have apt-get || may_install=no

# Installs packages; services in them are not started: the tests start their own, on ports of their own.
# A policy that is already there is left alone.
install_packages() {
    # The $ in it are for the shell that root runs.
    # shellcheck disable=SC2016
    as_root sh -c '
        set -eu
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap "rm -f $policy" EXIT
            trap "exit 130" INT
            trap "exit 143" TERM HUP
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod 755 "$policy"
        fi
        export DEBIAN_FRONTEND=noninteractive
        # A new machine may be updating itself.
        wait_for_others="-o DPkg::Lock::Timeout=300"
        apt-get $wait_for_others update -q ||
            echo "bootstrap: the lists of packages could not be updated; going on with those that are here" >&2
        apt-get $wait_for_others install -q -y --no-install-recommends "$@"
    ' sh "$@" >&2 || {
        say "could not install: $*; what apt-get says about that is above"
        return 1
    }
}

if [ -n "$packages" ]; then
    if [ $may_install = no ]; then
        say "missing:$packages"
        if have apt-get; then
            say "install them, then run the same command again:"
            say "    sudo apt-get install --no-install-recommends$packages"
        else
            say "install them (the names are Debian's), then run the same command again"
        fi
        exit 1
    fi
    say "installing:$packages"
    # Words on purpose.
    # shellcheck disable=SC2086
    install_packages $packages
    hash -r
fi

case $purpose in
--test | --test-long | --bench | --bench-trees | --bench-auth | --bench-wan | --lab)
    for module in ssl dav; do
        nginx -V 2>&1 | grep -q "http_${module}_module" && continue
        say "the nginx that is here ($(command -v nginx)) was built without its $module module: install the package nginx"
        exit 1
    done
    ;;
esac

# --- From PyPI ------------------------------------------------------------------------------------

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gridlane-test

# A virtual environment in the user's cache, of wheels alone, by their digests: nothing is compiled.
need_environment() { # name, list of pins, interpreter
    environment=$cache/$1
    pins=$2
    python=${3:-/usr/bin/python3}
    # Another list makes another environment.
    pinned=$(sha256sum "$pins")
    complete=$environment/complete-${pinned%% *}
    [ ! -e "$complete" ] || return 0
    say "installing into $environment what $pins names"
    # Made where it stays: the scripts of a venv hold its path.
    rm -rf "$environment"
    { "$python" -m venv "$environment" &&
        "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            --require-hashes --requirement "$pins" >&2 &&
        touch "$complete"; } || {
        rm -rf "$environment"
        say "could not install what $pins names; what pip says about that is above"
        exit 1
    }
}

# The source archive of a package that an environment has, by its digest in the same list of pins: for the tests in there, which
# wheels do not have. Nothing of it is built.
need_source() { # name==version, list of pins
    source=$cache/sources/$(echo "$1" | sed 's/==/-/')
    [ ! -d "$source" ] || return 0
    need_environment hatchling-1 scripts/pins/hatchling.txt
    say "fetching the source of $1 into $source"
    mkdir -p "$cache/sources"
    fetched=$(mktemp -d "$cache/sources/.fetching-XXXXXX")
    trap 'rm -rf "$fetched"' EXIT
    sed -n "/^$1 /,/[^\\\\]\$/p" "$2" >"$fetched/pins"
    [ -s "$fetched/pins" ] || {
        say "$2 does not name $1"
        exit 1
    }
    { "$cache/hatchling-1/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --no-binary :all: --require-hashes --requirement "$fetched/pins" --dest "$fetched" >&2 &&
        tar -xzf "$fetched"/*.tar.gz -C "$fetched" --no-same-owner &&
        mv "$fetched/$(basename "$source")" "$source"; } || {
        say "could not fetch the source of $1; what pip says about that is above"
        exit 1
    }
    rm -rf "$fetched"
    trap - EXIT
}

case $purpose in
--test | --test-long)
    need_environment wsgidav-4.3.3 scripts/pins/wsgidav.txt
    need_environment xrootd-6.2.1 scripts/pins/xrootd.txt
    # What dask and pandas read from servers with.
    need_environment fsspec-2026.9.0 scripts/pins/fsspec.txt
    need_environment tokens-1 scripts/pins/tokens.txt
    # The readers that the Python package is tried with.
    need_environment python-1 scripts/pins/python.txt "$(python_for_lab)"
    # And uproot's own tests of files that are far away.
    need_source "uproot==$uproot_version" scripts/pins/python.txt
    # C++ ROOT, which has wheels for this machine only.
    [ "$(uname -m)" != x86_64 ] || need_environment root-1 scripts/pins/root.txt "$(python_for_lab)"
    ;;
esac

case $purpose in
--bench-read)
    need_environment xrootd-6.2.1 scripts/pins/xrootd.txt
    need_environment python-1 scripts/pins/python.txt "$(python_for_lab)"
    [ "$(uname -m)" != x86_64 ] || need_environment root-1 scripts/pins/root.txt "$(python_for_lab)"
    ;;
esac

case $purpose in
--test | --test-long | --wheel | --bench-read) need_environment maturin-1 scripts/pins/maturin.txt ;;
esac

case $purpose in
--test | --test-long | --lab) need_environment lab lab/requirements.txt "$(python_for_lab)" ;;
esac

# --- Rust -----------------------------------------------------------------------------------------

is_installed() { LC_ALL=C dpkg -s "$1" 2>/dev/null | grep -q '^Status: .* installed$'; }

# The package rustup excludes the distribution's own cargo and rustc, which may be needed.
may_install_rustup() {
    [ $may_install = yes ] && ! is_installed cargo && ! is_installed rustc &&
        LC_ALL=C apt-cache policy rustup | grep -q 'Candidate: [0-9]'
}

install_rustup() {
    if ! { may_install_rustup && say "installing: rustup" && install_packages rustup; }; then
        by_hand="install Rust 1.$cargo_minor_min or newer, then run the same command again"
        target=$(uname -m)-unknown-linux-gnu
        pinned=$(grep " $target\$" scripts/pins/rustup-init) || {
            say "scripts/pins/rustup-init names no installer for $target; $by_hand"
            exit 1
        }
        digest=${pinned%% *}
        version=${pinned#* }
        version=${version% *}
        installer_from=https://static.rust-lang.org/rustup/archive/$version/$target/rustup-init
        say "installing Rust for this user from $installer_from"
        fetched=$(mktemp -d)
        trap 'rm -rf "$fetched"' EXIT
        # Its name tells it what it is.
        curl --proto '=https' --tlsv1.2 --silent --show-error --fail \
            --output "$fetched/rustup-init" "$installer_from" || {
            say "cannot fetch it; $by_hand"
            exit 1
        }
        echo "$digest  $fetched/rustup-init" | sha256sum --check --quiet --strict >&2 || {
            say "it is not the one whose digest scripts/pins/rustup-init has: it is not run; $by_hand"
            exit 1
        }
        chmod 700 "$fetched/rustup-init"
        # Beside a cargo of the distribution, too.
        RUSTUP_INIT_SKIP_PATH_CHECK=yes "$fetched/rustup-init" -y --quiet --no-modify-path --profile minimal \
            --default-toolchain none >&2
    fi
    PATH=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH
    hash -r
}

if ! cargo_is_recent; then
    have rustup || install_rustup
    channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
    say "installing: Rust $channel"
    rustup toolchain install "$channel" --no-self-update --profile minimal --component rustfmt --component clippy >&2
    # A cargo of the distribution may stand before rustup's in PATH.
    PATH=$(dirname "$(command -v rustup)"):$PATH
    hash -r
    cargo_is_recent || {
        say "cargo is still not there or older than 1.$cargo_minor_min: $(command -v cargo || echo none)"
        exit 1
    }
fi

if [ "$purpose" = --test ] || [ "$purpose" = --test-long ]; then
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 && continue
        if have rustup; then
            rustup component add rustfmt clippy >&2
        else
            say "missing: cargo $component; the packages rustfmt and rust-clippy have it"
            exit 1
        fi
    done
fi
