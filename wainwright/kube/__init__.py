"""The Kubernetes adapter: raw list and watch, writes, leader election, and the cluster view in Redis."""
