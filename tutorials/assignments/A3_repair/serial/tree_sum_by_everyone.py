# refused by: tree_sum, tree_sum (hidden)
# Every thread adds up all numbers, and thread 0 stores them.


def tree_sum(x, y):
    total = ZERO
    for k in range(128):
        total += x[cuda.blockIdx.x * 128 + k]
    if cuda.threadIdx.x == 0:
        y[cuda.blockIdx.x] = total
