"""Malformed replies, hostile sources and mutated build orders, by the thousand: the judge must outlive all of them."""
