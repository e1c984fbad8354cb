# refused by: tree_sum, tree_sum (hidden)
# Thread 0 reads all numbers by atomic operations.


def tree_sum(x, y):
    if cuda.threadIdx.x == 0:
        total = ZERO
        for k in range(128):
            total += cuda.atomic.add(x, cuda.blockIdx.x * 128 + k, ZERO)
        y[cuda.blockIdx.x] = total
