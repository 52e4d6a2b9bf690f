#!/bin/sh
# Labels and taints GPU nodes by a list: one node a line, with its pool, block, rack and `aligned` or `-`.
#
#   manifests/cluster/nodes/label-nodes.sh manifests/cluster/nodes/nodes.txt
#
# Running it again changes nothing; a node that is not there ends it with an error. KUBECTL names another command than kubectl.
set -eu

kubectl=${KUBECTL:-kubectl}
list=${1:?"name a file with: node pool block rack aligned|-"}

while read -r node pool block rack aligned rest; do
  case $node in '' | '#'*) continue ;; esac
  if [ -z "$aligned" ] || [ -n "$rest" ]; then
    echo "$list: $node: five words are wanted: node pool block rack aligned|-" >&2
    exit 2
  fi
  # A taint's value is part of it: a second one with another value would stand beside the first.
  "$kubectl" taint node "$node" --overwrite nvidia.com/gpu=present:NoSchedule </dev/null
  "$kubectl" label node "$node" --overwrite "gpugate.io/pool=$pool" "gpugate.io/block=$block" "gpugate.io/rack=$rack" </dev/null
  case $aligned in
    aligned) "$kubectl" label node "$node" --overwrite gpugate.io/numa-aligned=true </dev/null ;;
    *) "$kubectl" label node "$node" gpugate.io/numa-aligned- </dev/null ;;
  esac
done <"$list"
