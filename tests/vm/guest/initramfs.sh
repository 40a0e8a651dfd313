#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# First stage of a guest, in its initramfs: puts a tmpfs over the host's root (shared read-only) and goes there.

die() {
    echo "topstat-vm: boot failed: $1"
    /bin/busybox reboot -f
}
bb=/bin/busybox

$bb mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    [ ! -e "$module" ] || $bb insmod "$module" || die "cannot load $module"
done

$bb mount -t virtiofs -o ro root /ro || die "cannot mount the host's root"
$bb mount -t tmpfs -o mode=755 tmpfs /rw || die "cannot mount a tmpfs"
$bb mkdir /rw/upper /rw/work
$bb mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new ||
    die "cannot mount an overlay on the host's root"

$bb mount -t tmpfs -o mode=755 run /new/run || die "cannot mount /run"
$bb mkdir -p /new/run/topstat-vm/share
$bb cp $bb /stage2.sh /systemd.sh /commands.sh /new/run/topstat-vm/
$bb mount -t virtiofs share /new/run/topstat-vm/share || die "cannot mount the folder for results"
$bb umount /dev
exec $bb switch_root /new /run/topstat-vm/busybox sh /run/topstat-vm/stage2.sh
