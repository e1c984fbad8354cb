"""Inside one kernel: which operations have loops, and how values travel between the loops."""
