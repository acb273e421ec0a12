"""kube-scheduler's part: pods of `default-scheduler` are bound, or told why not, in the real one's words."""
