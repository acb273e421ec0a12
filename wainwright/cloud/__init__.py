"""The CloudProvider port (`port`) and its implementations: `simulated`, `aws`."""
