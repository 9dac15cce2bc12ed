#!/bin/bash
# The floor of `make bench BENCH=glusterfs`: what somebody types who knows GlusterFS, as fast as it goes.
# usage: glusterfs_floor.sh cluster|volume NAME SIZE PID ADDRESS PID ADDRESS PID ADDRESS
#   cluster   three hosts with a blank disk each become a pool with one volume, mounted on the first host
#   volume    one more volume on that pool, mounted
set -eu
what=$1 name=$2 size=$3; shift 3
pids=() addresses=()
while [ $# -gt 0 ]; do pids+=("$1"); addresses+=("$2"); shift 2; done
on() { local pid=${pids[$1]}; shift; nsenter --target "$pid" --mount --uts --net --ipc --pid -- "$@"; }
gluster() { on 0 gluster --mode=script "$@" >/dev/null; }

if [ "$what" = cluster ]; then
  for n in 0 1 2; do
    on "$n" sh -c "mkfs.xfs -q -i size=512 /dev/vdb && mkdir -p /srv/bricks && mount /dev/vdb /srv/bricks && glusterd" &
  done
  wait
  for n in 0 1 2; do until on "$n" gluster --mode=script pool list >/dev/null 2>&1; do sleep 0.05; done; done
  gluster peer probe "${addresses[1]}"
  gluster peer probe "${addresses[2]}"
  until [ "$(on 0 gluster peer status | grep -c 'Peer in Cluster (Connected)')" = 2 ]; do sleep 0.05; done
fi
bricks=()
for n in 0 1 2; do bricks+=("${addresses[$n]}:/srv/bricks/$name"); done
gluster volume create "$name" replica 3 "${bricks[@]}"
gluster volume set "$name" network.ping-timeout 10 client.tcp-user-timeout 10 \
  auth.allow "$(IFS=,; echo "${addresses[*]}")" cluster.server-quorum-type server
gluster volume start "$name"
gluster volume quota "$name" enable
gluster volume quota "$name" limit-usage / "$size"
gluster volume set "$name" features.hard-timeout 0 features.soft-timeout 0
on 0 mkdir -p "/mnt/$name"
on 0 mount -t glusterfs "${addresses[0]}:/$name" "/mnt/$name"
on 0 sh -c "echo written > /mnt/$name/file && grep -q written /mnt/$name/file"
