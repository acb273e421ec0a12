"""The embedded cluster's controllers: kubelets, scheduler, node lifecycle, workloads, garbage collection.

One asyncio process that knows an API server (embedded or real) by its kubeconfig and speaks only HTTP to it. Decisions
are functions of objects; reading (informers) and writing (client) stand apart from them.
"""
