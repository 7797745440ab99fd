"""Texts about a kernel for people and prompts: failures, mismatches, profiles and the bottleneck.

May import every package of evaluators/ from `worker` to `analysis`.
"""
