# refused by: work, work (hidden)
# Every thread finds the top and the total of the whole row for itself, from global memory.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    top, total = LOWEST, ZERO
    for col in range(x.shape[1]):
        top = max(top, x[row, col])
    for col in range(x.shape[1]):
        total += math.exp(x[row, col] - top)
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(x[row, col] - top) / total
