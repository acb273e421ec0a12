"""Batch windows, gates, locks and the records of batches, plans and claims.

`windows` is the pure window policy; the rest is the Redis adapter, the only code that imports redis (through `store`).
"""
