"""The API server of the embedded cluster.

`core.ApiServer.handle` is a function of a request and the time, free of HTTP; `http` puts it on aiohttp, `process`
runs it as a child process, `testing` as a thread. Everything here is state in memory: no etcd, no RBAC, no webhooks.
"""
