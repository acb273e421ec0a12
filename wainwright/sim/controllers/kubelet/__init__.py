"""The simulated kubelets: nodes become Ready and keep a lease, pods on them run, end, are refused, stop."""
