"""Pod autoscaling at work: `wainwright.autoscaling` decides, this package reads load and cluster, keeps the state in
Redis, and writes. No Celery here; Redis through the Store, Kubernetes through its client.
"""
