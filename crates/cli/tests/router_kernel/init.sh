#!/bin/busybox sh
# The guest's first process: makes the place in which /script runs, runs it, and ends the guest. What
# the script says goes to the second serial port; the kernel's own words go to the first.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var /root /usr/sbin
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ln -s /run /var/run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ulimit -n 65536
for module in /modules/*.ko; do
    insmod "$module" || echo "cannot load $module"
done
ip link set dev lo up
stty -F /dev/ttyS1 raw
# Not busybox's own shell, which prefers its own commands to those in the PATH.
bash -eu /script </dev/null >/dev/ttyS1 2>&1
status=$?
echo "exit $status" >/dev/ttyS1
poweroff -f
