#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# Runs between the second stage of a guest and its commands if process 1 must be the host's systemd: systemd gets the journal
# and the commands to start, and no service of the host. The changes are made in the guest's overlay.

# Set by the second stage.
bb=${bb:?}
init=${init:?}
# The folder of systemd's units, and the folder for the units of this boot.
units=/lib/systemd/system
run=/run/systemd/system

$bb rm -rf /etc/systemd/system $units/*.target.wants /usr/local/lib/systemd
$bb mkdir -p /etc/systemd/system $run/sysinit.target.wants $run/sockets.target.wants /run/systemd/system-generators
$bb ln -s $units/systemd-journald.service $run/sysinit.target.wants/
for unit in systemd-journald.socket systemd-journald-dev-log.socket; do
    $bb ln -s $units/$unit $run/sockets.target.wants/
done
# Generators would add units for the host's fstab, disks and consoles.
for generator in /lib/systemd/system-generators/*; do
    $bb ln -s /dev/null "/run/systemd/system-generators/${generator##*/}"
done
# The unit would hide the host's files in /tmp.
$bb ln -s /dev/null $run/tmp.mount
# Auditing stays off.
$bb ln -s /dev/null $run/systemd-journald-audit.socket
# The host may be a container; the guest is not.
$bb rm -f /.dockerenv /run/.containerenv
# Without a machine id systemd would treat the guest as a machine that boots for the first time.
[ -s /etc/machine-id ] || echo 0123456789abcdef0123456789abcdef >/etc/machine-id

# The guest ends, however the commands end.
$bb cat >$run/topstat-vm.service <<-EOF
	[Unit]
	Requires=basic.target
	After=basic.target
	SuccessAction=reboot-force
	FailureAction=reboot-force

	[Service]
	ExecStart=$bb sh /run/topstat-vm/commands.sh
	TasksMax=infinity
	LimitNOFILE=1048576
	LimitMEMLOCK=infinity
	LimitCORE=0
EOF
exec "$init" --unit=topstat-vm.service --show-status=no
