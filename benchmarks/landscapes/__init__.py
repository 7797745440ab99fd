"""Real landscapes for comparing searches: every configuration of a few kernel spaces, timed by our own judge."""
