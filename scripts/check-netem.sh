#!/bin/sh
# Proves the back end netem of `gridlane wan` on a kernel that has netem, whatever the kernel of this machine:
# boots Debian's own under qemu, in software, with a system in memory that has just this binary, iproute2 and
# ping. Inside, scripts/netem-guest.sh is the first process: it makes the checks and prints a line for each.
# Needs no privilege, and changes nothing here. Takes two minutes on two cores.
#
#   scripts/check-netem.sh [GRIDLANE]     the binary [default: target/release/gridlane]
#
#   GRIDLANE_NETEM_CACHE=DIRECTORY        keeps the kernel's package (30 MB) there, and takes it from there;
#                                         without, it is fetched each time
#
# For Debian 12 and 13 on amd64. The packages:
#   qemu-system-x86   the machine
#   busybox-static    the shell and the programs inside
#   iproute2          ip and tc, which are what is to be tried with that kernel: they go inside
#   iputils-ping      goes inside
# Exit code: 0 if every check passed inside; 1 if one did not, or none could be made; 2 for a wrong command line.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
called_from=$(pwd)
cd "$here/.."
. scripts/env.sh

say() { echo "check-netem: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
give_up() {
    say "$@"
    exit 1
}

case $# in
0) gridlane=${CARGO_TARGET_DIR:-target}/release/gridlane ;;
1)
    case $1 in
    -*)
        echo 'usage: scripts/check-netem.sh [GRIDLANE]' >&2
        exit 2
        ;;
    /*) gridlane=$1 ;;
    *) gridlane=$called_from/$1 ;;
    esac
    ;;
*)
    echo 'usage: scripts/check-netem.sh [GRIDLANE]' >&2
    exit 2
    ;;
esac

# More than twice what it takes; the kernel's package is fetched before.
seconds_max=280

# --- What is needed -------------------------------------------------------------------------------

packages=
need() { # command package
    have "$1" || packages="$packages $2"
}
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need ip iproute2
need tc iproute2
need ping iputils-ping
if [ -n "$packages" ]; then
    say "missing:$packages"
    say "    sudo apt-get install --no-install-recommends$packages"
    exit 1
fi
for program in apt-get apt-cache dpkg-deb ldd; do
    have $program || give_up "there is no $program: this works on Debian, where the kernel to boot comes from"
done
[ "$(dpkg --print-architecture)" = amd64 ] || give_up 'this works on amd64 only'
busybox=$(command -v busybox)
! ldd "$busybox" >/dev/null 2>&1 || give_up 'this busybox needs libraries: install the package busybox-static'
[ -x "$gridlane" ] || give_up "there is no $gridlane: run 'make build', or name a binary"

work=$(mktemp -d)
machine=
# Called by the trap.
# shellcheck disable=SC2317
cleanup() {
    [ -z "$machine" ] || kill "$machine" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- The kernel -----------------------------------------------------------------------------------
# Its package is only unpacked. The small kernel for clouds does; elsewhere there is only the large one.

meta=linux-image-cloud-amd64
apt-cache show --no-all-versions $meta >/dev/null 2>&1 || meta=linux-image-amd64
kernel=$(LC_ALL=C apt-cache depends --important $meta 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
[ -n "$kernel" ] || give_up "apt knows no kernel of Debian ($meta): apt-get update, then run this again"

downloads=${GRIDLANE_NETEM_CACHE-}
if [ -n "$downloads" ]; then
    mkdir -p "$downloads"
    downloads=$(cd "$downloads" && pwd)
else
    downloads=$work/downloads
    mkdir "$downloads"
fi
package=$(find "$downloads" -maxdepth 1 -name "${kernel}_*.deb" | sort | tail -n 1)
if [ -z "$package" ]; then
    say "fetching $kernel"
    # Beside the cache first: half a file there would be taken for a whole one.
    mkdir "$work/fetched"
    (cd "$work/fetched" && apt-get download -q "$kernel") >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        give_up "cannot fetch $kernel; if its version is gone: apt-get update, then run this again"
    }
    mv "$work/fetched/${kernel}"_*.deb "$downloads/"
    package=$(find "$downloads" -maxdepth 1 -name "${kernel}_*.deb" | sort | tail -n 1)
fi
mkdir "$work/kernel"
dpkg-deb --fsys-tarfile "$package" |
    tar -x -C "$work/kernel" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' \
        '*/sch_netem.ko*' '*/veth.ko*' '*/tun.ko*' '*/tcp_bbr.ko*'
release=$(basename "$(echo "$work"/kernel/boot/vmlinuz-*)" | sed 's/^vmlinuz-//')
# So that the kernel finds them itself, as it does on an installed system.
"$busybox" depmod -b "$work/kernel" "$release"

# --- The system in memory -------------------------------------------------------------------------

root=$work/root
mkdir -p "$root"/bin "$root"/sbin "$root"/usr/bin "$root"/usr/sbin "$root"/dev "$root"/proc "$root"/sys \
    "$root"/run "$root"/tmp "$root"/etc "$root"/root "$root"/lib
cp -R "$work/kernel/lib/modules" "$root/lib/"

# A program at the place where it is found, and what it is linked to at the place where it is looked for.
install() { # program directory
    cp -L "$1" "$root/$2/"
    for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
        [ ! -e "$root$library" ] || continue
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}
install "$gridlane" usr/bin
[ "$(basename "$gridlane")" = gridlane ] || mv "$root/usr/bin/$(basename "$gridlane")" "$root/usr/bin/gridlane"
install "$(command -v ping)" usr/bin
install "$(command -v ip)" usr/sbin
install "$(command -v tc)" usr/sbin
cp "$busybox" "$root/bin/busybox"
for name in $("$busybox" --list); do
    [ -e "$root/bin/$name" ] || ln -s busybox "$root/bin/$name"
done
ln -s ../bin/busybox "$root/sbin/modprobe" # what the kernel calls
printf 'root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
: >"$root/etc/hosts"
cp "$here/netem-guest.sh" "$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | "$busybox" cpio -o -H newc -R 0:0) >"$work/initramfs" 2>"$work/log" || {
    cat "$work/log" >&2
    give_up 'cannot pack the system'
}

# --- The machine ----------------------------------------------------------------------------------

say "booting $release; $(tc -V | sed 's/^tc utility, //')"
: >"$work/console" # or the reader may be there first
nice -n 19 timeout $seconds_max qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 \
    -nodefaults -no-reboot -display none -nic none -serial stdio -monitor none \
    -kernel "$work/kernel/boot/vmlinuz-$release" -initrd "$work/initramfs" \
    -append 'console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off' </dev/null >>"$work/console" 2>&1 &
machine=$!
# The lines of the checks as they come; the verdict is read from the whole.
tail -n +1 -f --pid="$machine" "$work/console" 2>/dev/null | tr -d '\r' | sed -un 's/^netem: //p' || true
status=0
wait "$machine" || status=$?
machine=

if tr -d '\r' <"$work/console" | grep -qx 'netem: all checks passed'; then
    exit 0
fi
if ! tr -d '\r' <"$work/console" | grep -qE '^netem: [0-9]+ of [0-9]+ checks failed$'; then
    say 'the machine did not get to its last check; the end of what it said:'
    tr -d '\r' <"$work/console" | tail -n 30 >&2
    [ $status != 124 ] || say "that took longer than $seconds_max s"
fi
exit 1
