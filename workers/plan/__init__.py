"""`wainwright plan`: what would happen, with no cluster.

Reading (documents, kinds, manifests) → what the API server would add (admission) → pods of workloads (workloads) → the
solver's input (inputs, scenario, current) → solve and check (command) → answers (output, topology, render, explain).
Files and the running Wainwright are read in documents, scenario and current only; all else is values in, values out.
"""
