"""A real Kubernetes control plane under tests: its binaries (`assets`, `build`) and its processes (`processes`)."""
