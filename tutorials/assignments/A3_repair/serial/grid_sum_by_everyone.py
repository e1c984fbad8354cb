# refused by: grid_sum, grid_sum (hidden)
# Every thread adds up all of x.


def grid_sum(x, part, y):
    total = ZERO
    for i in range(x.size):
        total += x[i]
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] - total
