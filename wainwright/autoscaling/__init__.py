"""How many pods a target should have, as Knative's KPA decides it. Pure: load, state and `now` in, a wish out."""
