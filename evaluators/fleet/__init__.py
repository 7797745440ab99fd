"""Several judges, each on a device of its own: processes of this machine, or actors of a Ray cluster.

May import every package of evaluators/ but `diagnostics`; a judge runs in another process.
"""
