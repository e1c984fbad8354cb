# refused by: right
# It stores 0 everywhere: no race, no barrier, no answer.


def softmax(x, y):
    for col in range(cuda.threadIdx.x, x.shape[1], THREADS):
        y[cuda.blockIdx.x, col] = ZERO
