#!/bin/sh
# The checks of scripts/check-netem.sh. Runs in the machine that it boots, as the first process: there is
# nothing but the kernel, busybox, iproute2, ping and gridlane. What the outside is to read begins with
# `netem: `.
set -u
if [ $$ != 1 ]; then
    echo 'this is for the machine that scripts/check-netem.sh boots' >&2
    exit 2
fi
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
chmod 1777 /tmp
hostname guest
# The only shell here is busybox's.
# shellcheck disable=SC3045
ulimit -n 65536
# As Debian has it: without, `near` is only the first of its two addresses.
echo 'multi on' >/etc/host.conf
# Busybox prefers its own.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
ip link set lo up

# --- Saying what was found ------------------------------------------------------------------------

made=0
failed=0
say() { echo "netem: $*"; }
verdict() { # yes|no what measured expected
    made=$((made + 1))
    if [ "$1" = yes ]; then
        say "ok    $2: $3 (expected: $4)"
    else
        failed=$((failed + 1))
        say "FAIL  $2: $3 (expected: $4)"
    fi
}
holds() { awk "BEGIN { exit !($1) }"; }
between() { # what measured least most unit
    case $2 in
    '' | *[!0-9.]*) verdict no "$1" "'$2'" "$3 to $4 $5" ;;
    *)
        if holds "$2 >= $3 && $2 <= $4"; then verdict yes "$1" "$2 $5" "$3 to $4"; else verdict no "$1" "$2 $5" "$3 to $4"; fi
        ;;
    esac
}
same() { # what measured expected
    if [ "$2" = "$3" ]; then verdict yes "$1" "$2" "$3"; else verdict no "$1" "'$2'" "$3"; fi
}
contains() { # what text words
    case $2 in
    *"$3"*) verdict yes "$1" "$3" 'that' ;;
    *) verdict no "$1" "'$2'" "$3" ;;
    esac
}
finish() {
    say "took $(cut -d . -f 1 /proc/uptime) s"
    if [ $failed = 0 ]; then
        say 'all checks passed'
    else
        say "$failed of $made checks failed"
    fi
    poweroff -f
}
calculated() { awk "BEGIN { printf \"%.$2f\", $1 }"; }

# --- Asking ---------------------------------------------------------------------------------------

at() { # site command...
    site=$1
    shift
    timeout 60 gridlane wan exec "$site" -- "$@"
}
now() { cut -d ' ' -f 1 /proc/uptime; }
show() { gridlane --json wan show; }
number() { # name, from one piece of JSON
    sed -n "s/.*\"$1\":\"*\\([^],}\"[]*\\).*/\\1/p"
}
direction() { # link sender: that piece of what is shown
    show | sed 's/{"counters":/\n&/g' | grep "\"from\":\"$2\".*\"link\":\"$1\""
}
node() { # name: that piece of what is shown
    show | sed 's/{"addresses":/\n&/g' | grep "^{\"addresses\".*\"name\":\"$1\""
}
discipline() { # site device: what tc says
    at "$1" tc qdisc show dev "$2"
}
round_trips() { # site target count: least average most, in ms; nothing if there was no answer
    at "$1" ping -q -n -i 0.05 -W 2 -c "$3" "$2" 2>&1 | sed -n 's|^rtt min/avg/max/mdev = \([0-9.]*\)/\([0-9.]*\)/\([0-9.]*\)/.*|\1 \2 \3|p'
}
# In this machine everything is late, but nothing can be early.
tolerance_ms=30
check_round_trip() { # what site target expected ms
    set -- "$1" "$4" "$(round_trips "$2" "$3" 8)"
    between "$1, of 8 (least average most: $3 ms)" "${3%% *}" "$2" "$(($2 + tolerance_ms))" ms
}
refusal() { # command...: its exit code and what it says
    said=$("$@" 2>&1)
    echo "$?: $said"
}
# Queues of netem, in whatever namespace: each holds the module.
netem_queues() {
    sed -n 's/^sch_netem [0-9]* \([0-9]*\) .*/\1/p' /proc/modules | grep . || echo 0
}
namespaces() { # of all processes, the first one's included
    for process in /proc/[0-9]*; do
        readlink "$process/ns/net" 2>/dev/null
    done | sort -u | wc -l
}
processes() { # whose program is called so
    for process in /proc/[0-9]*; do
        readlink "$process/exe" 2>/dev/null
    done | grep -c "/$1\$"
}
# The kernel takes namespaces apart in its own time.
settle() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(netem_queues)" = 0 ] && [ "$(namespaces)" = 1 ] && return
        sleep 0.5
    done
}
check_nothing_left() { # after what
    settle
    same "$1: queues of netem in the whole kernel" "$(netem_queues)" 0
    same "$1: network namespaces of processes" "$(namespaces)" 1
    same "$1: processes of gridlane" "$(processes gridlane)" 0
    same "$1: veth devices outside" "$(ip -o link show type veth | wc -l)" 0
}

# --- Scenarios ------------------------------------------------------------------------------------

mkdir /tmp/files
cat >/tmp/three.toml <<'END'
sites = ["client", "near", "far"]
routers = ["exchange"]
congestion_control = "bbr"

[[link]]
between = ["client", "exchange"]
delay_ms = 5
rate = "100Mb/s"
from.exchange.rate = "20Mb/s"

[[link]]
between = ["near", "exchange"]
delay_ms = 10
rate = "100Mb/s"

[[link]]
between = ["far", "exchange"]
delay_ms = 40
loss = 1e-4
END
cat >/tmp/two.toml <<'END'
sites = ["left", "right"]

[[link]]
between = ["left", "right"]
delay_ms = 5
rate = "50Mb/s"
jitter_ms = 2

[[event]]
at_s = 1.5
link = "left-right"
delay_ms = 50
END
megabytes=4
dd if=/dev/urandom of=/tmp/files/data bs=1M count=$megabytes 2>/dev/null


# --- Checks that both back ends get ---------------------------------------------------------------

serve() { # site: a server there, until the network is down
    timeout 250 gridlane wan exec "$1" -- gridlane serve --access-log off --insecure-allow-anonymous \
        --listen 0.0.0.0:8080 --listen '[::]:8080' /tmp/files >"/tmp/serve.$1" 2>&1 &
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        # 8080, listening
        at "$1" grep -q ':1F90 0*:0000 0A' /proc/net/tcp && at "$1" grep -q ':1F90 0*:0000 0A' /proc/net/tcp6 && return
        sleep 0.2
    done
    verdict no "a server at $1" "$(cat "/tmp/serve.$1")" 'listening'
}
fetch() { # site url file: how long that took, in s
    began=$(now)
    at "$1" gridlane --quiet cp --force "$2" "$3" || return
    calculated "$(now) - $began" 2
}
bytes=$((megabytes * 1024 * 1024))
# At 20 Mb/s what an MTU of 1500 leaves: 1448 of 1538 bytes, 1428 with IPv6. A program needs time to start.
least_s() { # bytes payload
    calculated "$1 * 1538 / $2 * 8 / 20e6" 2
}
# Other guests of the processor can make anything late, so that too long is measured again, up to three times;
# too short is not.
check_copy() { # what target payload
    least=$(least_s $bytes "$3")
    for _ in 1 2 3; do
        took=$(fetch client "http://$2:8080/data" /tmp/copy)
        holds "${took:-0} > $least * 2" || break
    done
    between "$1: $bytes bytes at 20 Mb/s" "$took" "$least" "$(calculated "$least * 2" 2)" s
    same "$1: what arrived" "$(cmp /tmp/files/data /tmp/copy 2>&1 && echo 'the same')" 'the same'
}
check_shared_link() { # what
    least=$(least_s $((2 * bytes)) 1448)
    for _ in 1 2 3; do
        began_both=$(now)
        fetch client http://near.v4:8080/data /tmp/copy.near >/tmp/took.near &
        first=$!
        took_far=$(fetch client http://far.v6:8080/data /tmp/copy.far)
        wait $first
        both=$(calculated "$(now) - $began_both" 2)
        holds "$both > $least * 2" || break
    done
    between "$1: two copies through one link of 20 Mb/s (for itself $(cat /tmp/took.near) and $took_far s)" \
        "$both" "$least" "$(calculated "$least * 2" 2)" s
    # Each alone would have taken half of it.
    between "$1: how long the shorter one took" "$(printf '%s\n' "$(cat /tmp/took.near)" "$took_far" | sort -n | head -n 1)" \
        "$(calculated "$least * 0.6" 2)" "$(calculated "$least * 2" 2)" s
}
check_measured() { # back end
    check_round_trip "$1: client to near, IPv4" client near.v4 30
    check_round_trip "$1: client to near, IPv6" client near.v6 30
    check_round_trip "$1: client to far, IPv4" client far.v4 90
    check_round_trip "$1: client to far, IPv6" client far.v6 90
    check_round_trip "$1: near to far, IPv4" near far.v4 100
    check_round_trip "$1: near to far, IPv6" near far.v6 100
    check_round_trip "$1: far to the router itself, IPv6" far exchange.v6 80
    serve near
    serve far
    check_copy "$1: near to client, IPv4" near.v4 1448
    check_copy "$1: near to client, IPv6" near.v6 1428
    check_shared_link "$1"
    void=$(show | sed -n 's/.*"void":\([^}]*\)}$/\1/p')
    same "$1: whether figures are void" "$void" null
}
# The packets of nothing but one ping with an answer, and of 500 of which one in ten is lost.
check_counters() { # back end; where losses by lot are counted
    before=$(direction near-exchange near)
    at near ping -q -n -c 1 -W 2 exchange.v4 >/dev/null
    after=$(direction near-exchange near)
    for field in passed_packets passed_bytes; do
        was=$(echo "$before" | number $field)
        is=$(echo "$after" | number $field)
        expected=1
        [ $field = passed_packets ] || expected=84
        same "$1: $field of one ping of 84 bytes" "$((is - was))" $expected
    done
    gridlane wan set near-exchange --from near --loss 0.1
    before=$(direction near-exchange near | number "$2")
    lost=$(at near ping -q -n -c 500 -i 0.005 -W 2 exchange.v4 2>&1 |
        sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p' | { read -r sent got && echo $((sent - got)); })
    after=$(direction near-exchange near | number "$2")
    # Five standard deviations.
    between "$1: lost of 500 pings, with a loss of 0.1" "$lost" 16 84 ''
    same "$1: $2 meanwhile" "$((after - before))" "$lost"
    gridlane wan set near-exchange --restore
}

# 600 full packets at once, which take 369 ms at 20 Mb/s, with room for 250 kB, which are 100 ms; the way back
# has no limit. It is behind a router: a sender is told when its own queue is full, and waits.
check_queue() { # back end
    gridlane wan set near-exchange --from exchange --rate 20Mb/s --queue 250kB
    gridlane wan set near-exchange --from near --rate unlimited
    at far ping -q -n -l 600 -c 600 -s 1472 -W 3 near.v4 >/tmp/pings 2>&1
    sent_and_got=$(sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 - \2/p' /tmp/pings)
    most=$(sed -n 's|^rtt min/avg/max/mdev = [0-9.]*/[0-9.]*/\([0-9.]*\)/.*|\1|p' /tmp/pings)
    between "$1: longest round trip behind a queue of 100 ms, without it 100 ms" "$most" 180 320 ms
    # Some leave while others come.
    between "$1: of a burst of 600, dropped for want of room" "$((${sent_and_got:-0}))" 20 437 packets
    gridlane wan set near-exchange --restore
}

# --- A kernel that lacks something ----------------------------------------------------------------

say "kernel $(uname -r), $(tc -V | sed 's/^tc utility, //'); times are those of an emulated processor"
check_refusal() { # what exit-code words command...
    what=$1 code=$2 words=$3
    shift 3
    said=$(refusal "$@")
    contains "$what: what up says" "$said" "$words"
    same "$what: its exit code" "${said%%:*}" "$code"
    check_nothing_left "$what"
}
for module in veth sch_netem; do
    file=$(find /lib/modules -name "$module.ko*")
    mv "$file" "$file.hidden"
    check_refusal "without $module" 12 "modprobe $module" gridlane wan up --backend netem /tmp/three.toml
    mv "$file.hidden" "$file"
done
sed 's/"bbr"/"nonesuch"/' /tmp/three.toml >/tmp/nonesuch.toml
check_refusal 'unknown congestion control' 12 tcp_available_congestion_control gridlane wan up --backend netem /tmp/nonesuch.toml

# --- Bringing it up -------------------------------------------------------------------------------

said=$(refusal gridlane wan up --backend netem /tmp/three.toml)
same 'up: exit code' "${said%%:*}" 0
if [ "${said%%:*}" != 0 ]; then
    say "$said"
    finish
fi
same 'up: queues of netem in the whole kernel' "$(netem_queues)" 6
all=$(show)
same 'show: back end' "$(echo "$all" | number backend)" netem
same 'show: packets before any were sent' "$(echo "$all" | grep -o '"passed_packets":[0-9]*' | sort -u | tr '\n' ' ')" '"passed_packets":0 '
at_end=1
for name in client near far exchange; do
    piece=$(node $name)
    same "show: congestion control at $name" "$(echo "$piece" | number congestion_control)" bbr
    contains "show: addresses of $name" "$piece" "[\"198.18.0.$at_end\",\"2001:2::$at_end\"]"
    at_end=$((at_end + 1))
done
same 'names: the host name at near' "$(at near hostname)" near
contains 'names: near' "$(at client ping -c 1 -W 2 near 2>&1)" '2001:2::2'
contains 'names: near.v4' "$(at client ping -c 1 -W 2 near.v4 2>&1)" '(198.18.0.2)'
# No other node answers, and the router says so itself.
contains 'two hops: IPv4, one is too few' "$(at near ping -n -t 1 -c 1 -W 2 far.v4 2>&1)" 'From 198.18.0.4 icmp_seq=1 Time to live exceeded'
contains 'two hops: IPv6, one is too few' "$(at near ping -n -t 1 -c 1 -W 2 far.v6 2>&1)" 'From 2001:2::4 icmp_seq=1 Time exceeded: Hop limit'
# 5 ms at 100 Mb/s, 190 ms at 20 Mb/s and 100 Mb/s
contains 'tc: exchange to client' "$(discipline exchange wan0)" 'limit 189 delay 5ms rate 20Mbit packetoverhead 24'
contains 'tc: client to exchange' "$(discipline client wan0)" 'limit 774 delay 5ms rate 100Mbit packetoverhead 24'
contains 'tc: exchange to far' "$(discipline exchange wan2)" 'limit 4000000 delay 40ms loss 0.01%'

check_measured netem
check_counters netem dropped_packets
check_queue netem

# A veth pair drops when too much waits for the processor of the receiving end; netem has passed it by then.
echo 1 >/proc/sys/net/core/netdev_max_backlog
echo 1 >/proc/sys/net/core/dev_weight
at far ping -q -n -l 400 -c 2000 -i 0 -s 1000 -W 1 exchange.v4 >/dev/null 2>&1
echo 1000 >/proc/sys/net/core/netdev_max_backlog
echo 64 >/proc/sys/net/core/dev_weight
dropped=$(at far cat /proc/net/dev | sed -n 's/^ *wan2://p' | awk '{ print $12 }')
between 'device: packets that it dropped of 2000, with no room for them' "$dropped" 1 2000 packets
same 'device: device_dropped_packets' "$(direction far-exchange far | number device_dropped_packets)" "$dropped"
contains 'device: whether figures are void' "$(show | grep -o '"void":.*')" 'from far to exchange: '

# --- Changing it ----------------------------------------------------------------------------------

gridlane wan set near-exchange --delay-ms 60 --rate 7Mb/s
contains 'set: a delay and a rate' "$(discipline near wan1)" 'delay 60ms rate 7Mbit'
check_round_trip 'set: a delay of 60 ms' near exchange.v4 120
gridlane wan set near-exchange --from near --delay-ms 1 --rate unlimited --loss 0.5
contains 'set: one end, tc' "$(discipline near wan1)" 'delay 1ms loss 50%'
same 'set: one end, no rate' "$(discipline near wan1 | grep -c rate)" 0
contains 'set: one end, the other' "$(discipline exchange wan1)" 'delay 60ms rate 7Mbit'
before=$(discipline far wan2)
said=$(refusal gridlane wan set far-exchange --jitter-ms 1)
contains 'set: jitter without a rate' "$said" 'jitter without a rate'
same 'set: its exit code (unsupported)' "${said%%:*}" 12
same 'set: tc after that' "$(discipline far wan2)" "$before"
gridlane wan set far-exchange --rate 50Mb/s --jitter-ms 10 --loss 0
contains 'set: jitter with a rate' "$(discipline far wan2)" 'delay 40ms  10ms rate 50Mbit'
round=$(round_trips far exchange.v4 20)
between "set: jitter of 10 ms, least of 20 (least average most: $round ms)" "${round%% *}" 60 100 ms
between 'set: jitter of 10 ms, from least to most' "$(calculated "${round##* } - ${round%% *}" 1)" 10 500 ms
gridlane wan set near-exchange --restore --down
contains 'set: down' "$(discipline near wan1)" 'loss 100%'
before=$(direction near-exchange near | number dropped_packets)
contains 'set: down, pings' "$(at near ping -q -n -c 3 -i 0.05 -W 1 exchange.v4)" '100% packet loss'
same 'set: down, dropped_packets' "$(($(direction near-exchange near | number dropped_packets) - before))" 3
gridlane wan set near-exchange --up
check_round_trip 'set: up again' near exchange.v6 20
gridlane wan set far-exchange --restore
contains 'set: restore' "$(discipline far wan2)" 'limit 4000000 delay 40ms loss 0.01%'
contains 'set: restore, near' "$(discipline near wan1)" 'limit 896 delay 10ms rate 100Mbit packetoverhead 24'
check_round_trip 'set: restored' near far.v4 100

# --- A second network, with a timetable -----------------------------------------------------------

export GRIDLANE_WAN_NAME=other
gridlane --quiet wan up --backend netem /tmp/two.toml
timeout 30 gridlane wan exec --timetable left -- ping -n -c 30 -i 0.1 -W 2 right.v4 >/tmp/pings 2>&1
times=$(sed -n 's/.* time=\([0-9.]*\) ms$/\1/p' /tmp/pings)
between 'event: a round trip before' "$(echo "$times" | sed -n 5p)" 6 80 ms
between 'event: a round trip after' "$(echo "$times" | tail -n 1)" 96 200 ms
contains 'event: tc' "$(discipline left wan0)" 'delay 50ms  2ms'
same 'event: answers, each in order' "$(sed -n 's/.*icmp_seq=\([0-9]*\) .*/\1/p' /tmp/pings | tr '\n' ' ')" "$(seq 1 30 | tr '\n' ' ')"

# --- Taking it down -------------------------------------------------------------------------------

kill -9 "$(show | number pid)"
sleep 2
same 'killed: queues of netem, with the first network still up' "$(netem_queues)" 6
same 'killed: what down says' "$(refusal gridlane wan down)" '0: other had died; removed what was left of it (0 processes)'
# A veth pair stays for as long as something runs at both of its ends.
gridlane --quiet wan up --backend netem /tmp/two.toml
at left sleep 100 &
at right sleep 100 &
sleep 1
kill -9 "$(show | number pid)"
sleep 2
say "note  killed with a program at each end: $(($(netem_queues) - 6)) queues of netem stay until it is taken down"
same 'killed with programs: what down says' "$(refusal gridlane wan down)" '0: other had died; removed what was left of it (2 processes)'
sleep 2
same 'killed with programs: programs after down' "$(processes sleep)" 0
same 'killed with programs: queues of netem after down' "$(netem_queues)" 6
unset GRIDLANE_WAN_NAME
check_round_trip 'killed: the first network' near far.v6 100
same 'down: exit code, with servers running' "$(refusal gridlane wan down)" '0: default is down'
check_nothing_left down
same 'down: files in /run' "$(find /run -type f -o -type s | wc -l)" 0

# --- An ordinary user -----------------------------------------------------------------------------

mkdir -p /run/user/1000
chown 1000:1000 /run/user/1000
as_user() {
    su -s /bin/sh user -c "XDG_RUNTIME_DIR=/run/user/1000 $1"
}
# Several times, because getting there once depended on the moment.
for attempt in 1 2 3 4 5; do
    said=$(refusal as_user 'gridlane wan up --quiet --backend netem /tmp/three.toml')
    same "user: exit code of up, time $attempt" "${said%%:*}" 0
    [ "${said%%:*}" = 0 ] || say "$said"
    [ $attempt != 5 ] || contains 'user: privilege' "$(as_user 'gridlane --json wan show')" '"privilege":"user namespace"'
    [ $attempt != 5 ] || contains 'user: a ping' "$(as_user 'gridlane wan exec near -- ping -n -c 1 far.v6' 2>&1)" '1 received, 0% packet loss'
    as_user 'gridlane --quiet wan down'
done
check_nothing_left user

# --- The same with the other back end -------------------------------------------------------------

modprobe tun
gridlane --quiet wan up --backend tun /tmp/three.toml
same 'tun: back end' "$(show | number backend)" tun
check_measured tun
check_counters tun lost_packets
check_queue tun
gridlane --quiet wan down
check_nothing_left tun

finish
