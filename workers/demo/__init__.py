"""`wainwright demo`: the main job end to end on the embedded stack, with a verdict."""
