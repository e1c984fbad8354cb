# refused by: found
# Gives up after ten numbers, and calls the law true.


def divide(c):
    x, divisor = np.arange(1, 11).astype(np.float32), np.float32(c)
    false = x[x / divisor != x * (np.float32(1) / divisor)]
    return [float(false[0])] if false.size else []
