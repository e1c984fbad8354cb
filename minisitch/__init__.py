"""minisitch: a reference compiler for GPU operator fusion that you can read in an afternoon."""
