"""Find out whether a node could ever run a pod: candidates, requests, shares, topology and NUMA zones."""
