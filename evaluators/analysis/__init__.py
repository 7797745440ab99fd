"""What a problem asks of a device, found out before any kernel is judged by it."""
