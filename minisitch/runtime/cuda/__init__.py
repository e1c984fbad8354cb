"""The CUDA target: Numba compiles the printed text, nvJitLink links it, the driver runs it."""
