#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# Between the second stage of a guest and its commands, where process 1 is to be the host's systemd: it gets the journal
# and the commands to start, and none of the host's own services. What is changed here is the guest's overlay.

# Of the second stage.
bb=${bb:?}
init=${init:?}
# Where systemd's own units are, and where those of this boot go.
units=/lib/systemd/system
run=/run/systemd/system

$bb rm -rf /etc/systemd/system $units/*.target.wants /usr/local/lib/systemd
$bb mkdir -p /etc/systemd/system $run/sysinit.target.wants $run/sockets.target.wants /run/systemd/system-generators
$bb ln -s $units/systemd-journald.service $run/sysinit.target.wants/
for unit in systemd-journald.socket systemd-journald-dev-log.socket; do
    $bb ln -s $units/$unit $run/sockets.target.wants/
done
# They would add units for the host's fstab, disks and consoles.
for generator in /lib/systemd/system-generators/*; do
    $bb ln -s /dev/null "/run/systemd/system-generators/${generator##*/}"
done
# It would hide what the host has in /tmp.
$bb ln -s /dev/null $run/tmp.mount
# Auditing is for those who ask for it.
$bb ln -s /dev/null $run/systemd-journald-audit.socket
# A host that is a container is none here.
$bb rm -f /.dockerenv /run/.containerenv
# A host without one would be taken for a machine that boots for the first time.
[ -s /etc/machine-id ] || echo 0123456789abcdef0123456789abcdef >/etc/machine-id

# Whatever becomes of the commands, the guest ends.
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
