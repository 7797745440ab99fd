"""Tasks of Inspect, the evaluation framework of the UK AI Security Institute: its models write, our judge scores."""
