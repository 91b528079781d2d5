# Removes what a node leaves: its directory is $PLACE. Waits first for the end of its input, which is the end of whoever
# started it, however that went. It is nobody's child in the sense of dying with its parent: that is what it is for.
cat >/dev/null

group=5spot-testbed-${PLACE##*/}

groups() {
    find /sys/fs/cgroup -maxdepth 2 -type d -name "$group"
}

# What runs in the pods comes first: a shim that lives reaps its containers. Shims outlive their containerd by design.
left() {
    pids=$(for root in $(groups); do find "$root" -name cgroup.procs -exec cat {} +; done | sort -u)
    # The pattern is in a file, so that grep does not find itself.
    [ -n "$pids" ] || pids=$(grep -lsF -f "$PLACE/address" /proc/[0-9]*/cmdline | cut -d/ -f3)
    [ -n "$pids" ]
}

looks=0
while left && [ $looks -lt 300 ]; do
    kill -9 $pids 2>/dev/null
    sleep 0.1
    looks=$((looks + 1))
done

for root in $(groups); do
    find "$root" -depth -type d -exec rmdir {} \;
done
data=$(readlink "$PLACE/data") && rm -rf --one-file-system "$data"
rm -rf --one-file-system "$PLACE"
