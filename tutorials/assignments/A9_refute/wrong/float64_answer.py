# refused by: division
# Searches in float64: both sides agree in float32.


def divide(c):
    x = np.arange(1, 2001, dtype=np.float64)
    false = x[x / c != x * (1 / c)]
    return [float(false[0])] if false.size else []
