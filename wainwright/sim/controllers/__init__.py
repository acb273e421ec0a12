"""The embedded cluster's controllers: kubelets, scheduler, node lifecycle, workloads, garbage collection.

One asyncio process that knows an API server (embedded or real) by its kubeconfig and speaks only HTTP to it. Decisions
are functions of objects; reading (informers) and writing (client) stand apart from them.

Annotations that steer the simulation, on pods: `sim.wainwright.dev/run-seconds`, `…/exit-code`, `…/stop-seconds`
(see `kubelet.pod_steps`); on nodes: `…/frozen` (see `kubelet.machines`).

Left out: preemption (a pod that could preempt is told that there are no victims), volume provisioning (a claim that
waits for its first consumer limits its pod by its class and stays unbound), CronJobs (each is told so), adoption of
pods by selector, ControllerRevisions, endpoints, quotas, horizontal pod autoscalers.
"""
