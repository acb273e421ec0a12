"""Wainwright on a real control plane: real scheduler and controllers, simulated cloud and kubelets."""
