# refused by: found
# Looks only at numbers for which the law is false in Python floats, which are float64.


def divide(c):
    for number in range(1, 40):
        x, divisor = np.float32(number), np.float32(c)
        if number / c != number * (1 / c) and x / divisor != x * (np.float32(1) / divisor):
            return [float(x)]
    return []
