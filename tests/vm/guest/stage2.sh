#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# Second stage of a guest, process 1 on its final root: mounts the usual file systems. Then commands.sh runs the commands; if
# the settings name an init, it becomes process 1, and runs commands.sh as a service (systemd.sh). All programs here come from
# a busybox on a tmpfs, so that any root of the host works.

bb=/run/topstat-vm/busybox
share=/run/topstat-vm/share
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cgroup='' modules='' config='' init='' host='' work=''
# shellcheck disable=SC1091 # written for each guest: it sets these
. $share/settings

mnt() { # type, folder, options: what the kernel lacks is no failure
    $bb mkdir -p "$2" && $bb mount -t "$1" ${3:+-o "$3"} "$1" "$2" 2>/dev/null
}
die() {
    echo "topstat-vm: boot failed: $1"
    $bb reboot -f
}
for basic in proc:/proc sysfs:/sys devtmpfs:/dev; do
    mnt ${basic%:*} ${basic#*:} || die "cannot mount ${basic#*:}"
done
mnt devpts /dev/pts mode=620,gid=5,ptmxmode=666
mnt tmpfs /dev/shm mode=1777
mnt tracefs /sys/kernel/tracing
mnt debugfs /sys/kernel/debug
mnt bpf /sys/fs/bpf mode=700
$bb ln -sf /proc/self/fd /dev/fd
$bb ln -sf /proc/self/fd/0 /dev/stdin
$bb ln -sf /proc/self/fd/1 /dev/stdout
$bb ln -sf /proc/self/fd/2 /dev/stderr

# A guest of another architecture boots a small Debian. It gets the host's folder in which the commands run.
if [ -n "$host" ]; then
    over=/run/topstat-vm/over
    $bb mkdir -p "$host" "$work" $over/upper $over/work
    $bb mount -t virtiofs -o ro host "$host" || die "cannot mount the host's root"
    $bb mount -t overlay -o "lowerdir=$host$work,upperdir=$over/upper,workdir=$over/work" overlay "$work" ||
        die "cannot mount an overlay on $work"
fi

case $cgroup in
v2) mnt cgroup2 /sys/fs/cgroup nsdelegate ;;
hybrid)
    mnt tmpfs /sys/fs/cgroup mode=755
    mnt cgroup2 /sys/fs/cgroup/unified nsdelegate
    for controllers in cpu,cpuacct cpuset memory blkio net_cls,net_prio pids freezer perf_event devices; do
        mnt cgroup /sys/fs/cgroup/$controllers $controllers
    done
    ;;
esac

if [ -n "$modules" ]; then
    $bb mkdir -p "/lib/modules/$($bb uname -r)"
    $bb mount -o bind "$modules" "/lib/modules/$($bb uname -r)"
fi

# Where programs look for the kernel's configuration.
[ ! -e "$config" ] || $bb ln -sf "$config" "/boot/config-$($bb uname -r)"

set_to() { # value, file: not every kernel has every one
    [ ! -e "$2" ] || echo "$1" >"$2"
}
set_to 1 /proc/sys/net/core/bpf_jit_enable
set_to 1 /proc/sys/net/core/bpf_jit_kallsyms
set_to 0 /proc/sys/kernel/kptr_restrict
set_to -1 /proc/sys/kernel/perf_event_paranoid
set_to 1048576 /proc/sys/fs/nr_open
set_to 1 /proc/sys/kernel/sysrq
ulimit -l unlimited
ulimit -n 1048576
ulimit -c 0
$bb ifconfig lo 127.0.0.1 up
$bb hostname topstat-vm
# A guest on a busy host stalls for longer than TCP waits for an acknowledgement (200 ms), and would retransmit data that is
# not lost. Loopback loses nothing, so TCP waits longer there. (Busybox's ip has no such option; the host's ip may be
# missing.)
set_to 0 /proc/sys/net/ipv4/tcp_early_retrans
for to in 127.0.0.0/8 127.0.0.1; do
    ip route change local $to dev lo table local proto kernel scope host src 127.0.0.1 rto_min 20s 2>/dev/null
done
ip -6 route add local ::1 dev lo table local rto_min 20s 2>/dev/null &&
    ip -6 route del local ::1 dev lo table local metric 0 2>/dev/null

# shellcheck source=tests/vm/guest/systemd.sh
[ -z "$init" ] || . /run/topstat-vm/systemd.sh
# shellcheck source=tests/vm/guest/commands.sh
. /run/topstat-vm/commands.sh
