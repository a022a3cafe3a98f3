"""The server beside the store: stateless, many tenants, memory that is never exceeded.

`app` answers HTTP and checks who may read what, `queue` decides when a request runs and with
which COS batch (`split/scheduler.py` is the decision), `workers` are the warm processes that
run it, `extraction` is what happens inside one of them, `limits` what holds it to its memory,
`serving` puts all of it together.
"""
