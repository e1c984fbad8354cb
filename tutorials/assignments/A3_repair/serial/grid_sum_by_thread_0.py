# refused by: grid_sum, grid_sum (hidden)
# The first thread adds up all of x, and stores all of y.


def grid_sum(x, part, y):
    if cuda.grid(1) == 0:
        total = ZERO
        for i in range(x.size):
            total += x[i]
        for i in range(x.size):
            y[i] = x[i] - total
