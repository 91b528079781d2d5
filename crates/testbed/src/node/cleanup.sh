# Kills the processes of a node and removes its files and cgroups. $NODE_DIR is the node's directory. Waits first until
# its standard input is closed, which happens when the process that started it exits or is killed. It must not have a
# parent-death signal: it has to outlive its parent.
cat >/dev/null

cgroup=5spot-testbed-${NODE_DIR##*/}

cgroups() {
    find /sys/fs/cgroup -maxdepth 2 -type d -name "$cgroup"
}

# Kill the processes in pods before the shims: a living shim reaps its containers. Shims outlive their containerd by design.
find_processes() {
    pids=$(for root in $(cgroups); do find "$root" -name cgroup.procs -exec cat {} +; done | sort -u)
    # Read the pattern from a file, so that grep does not match its own command line.
    [ -n "$pids" ] || pids=$(grep -lsF -f "$NODE_DIR/address" /proc/[0-9]*/cmdline | cut -d/ -f3)
    [ -n "$pids" ]
}

attempts=0
while find_processes && [ $attempts -lt 300 ]; do
    kill -9 $pids 2>/dev/null
    sleep 0.1
    attempts=$((attempts + 1))
done

for root in $(cgroups); do
    find "$root" -depth -type d -exec rmdir {} \;
done
data=$(readlink "$NODE_DIR/data") && rm -rf --one-file-system "$data"
rm -rf --one-file-system "$NODE_DIR"
