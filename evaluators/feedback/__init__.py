"""What the proposer is told about a kernel: failures, mismatches, profiles, the bottleneck."""
