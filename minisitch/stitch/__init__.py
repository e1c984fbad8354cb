"""What happens inside one kernel: which operations lead loops of their own, and how values travel between these loops."""
