"""People and coding agents as the model of a run: questions, answers, and the tools of the MCP server.

It may import every package of `evolve` except `inspect_tasks`, `web` and `cli`, and every package outside it.
"""
