"""Which nodes to make, and which pod goes where. Pure: values and `now` in, a plan out.

`solver.solve` is the one entry; `checker` shares no code with it and judges its plans.
"""
