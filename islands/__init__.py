"""Who breeds: islands, niches, selection and migration. Pure: no I/O, no clock, no global randomness."""
