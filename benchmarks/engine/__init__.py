"""What the engine itself costs a child: `python -m benchmarks.engine`."""
