"""The CPU target: Numba compiles the printed text, and threads share its tasks."""
