"""Workload controllers: what kube-controller-manager does for Deployments, ReplicaSets, DaemonSets, Jobs and others."""
