"""What makes a kernel fast: one file, one pass. A kernel without them is right, and slower."""
