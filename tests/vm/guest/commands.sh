#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# The last stage of a guest: runs the commands, and reboots (which ends QEMU).
#
# In $share: settings (variables), N.sh (command N). Written here: ready, N.begin, N.out, N.err, N.exit, done.

bb=/run/topstat-vm/busybox
share=/run/topstat-vm/share
# The control group of the service, if there is a service manager.
group=/sys/fs/cgroup/system.slice/topstat-vm.service
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
settle=0 init='' mode='' commands='' tty_size=''
# shellcheck disable=SC1091 # written for each guest: it sets these
. $share/settings

finish() {
    : >$share/done
    $bb reboot -f
}

# Ends all processes that commands have left running: under a service manager, the processes in this service's cgroup.
end_others() {
    if [ -z "$init" ]; then
        kill -9 -1 2>/dev/null
        return
    fi
    for pid in $($bb cat "$group/cgroup.procs"); do
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done
}

# Prints the kernel's state that makes further findings doubtful if it changes: the taint (warnings, oopses, memory errors),
# and lockdep, which reports only once.
kernel_state() {
    $bb cat /proc/sys/kernel/tainted
    [ ! -e /proc/lockdep_stats ] || $bb grep debug_locks: /proc/lockdep_stats
}

[ "$settle" = 0 ] || $bb sleep "$settle"
$bb cut -d' ' -f1 /proc/uptime >$share/ready.new
$bb mv $share/ready.new $share/ready

if [ "$mode" = shell ]; then
    tty=/dev/ttyS0
    [ ! -e /dev/ttyAMA0 ] || tty=/dev/ttyAMA0
    # shellcheck disable=SC1091 # it sets the environment
    . $share/0.sh
    # shellcheck disable=SC2086 # words, not one
    [ -z "$tty_size" ] || $bb stty $tty_size <$tty
    echo "topstat-vm: $($bb uname -r), changes are lost at exit" >$tty
    # shellcheck disable=SC2094 # a terminal, both ways
    $bb setsid -c "${SHELL:-/bin/sh}" -i <$tty >$tty 2>&1
    finish
fi

state=$(kernel_state)
for n in $commands; do
    echo "topstat-vm: begin $n" >/dev/kmsg
    : >"$share/$n.begin"
    # The host's shell: busybox would run its own programs instead of programs with the same name.
    /bin/sh "$share/$n.sh" </dev/null >"$share/$n.out" 2>"$share/$n.err"
    code=$?
    # Processes that the command has left would disturb the next command.
    end_others
    echo "topstat-vm: end $n" >/dev/kmsg
    echo $code >"$share/$n.code"
    $bb mv "$share/$n.code" "$share/$n.exit"
    [ "$(kernel_state)" = "$state" ] || break
done
finish
