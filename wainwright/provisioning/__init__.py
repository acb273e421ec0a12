"""From provisionable pods to bound ones: routing, snapshot, plan, launch, bind, through ports.

`Controller` keeps the NodePools, `Provisioner` takes pods; the steps of a claim's life are in `launching`.
"""
