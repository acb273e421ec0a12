"""A cloud without a cloud: a small HTTP service with a catalog, faults on demand, and a record of every launch."""
