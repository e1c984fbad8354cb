# refused by: edit
# It is right, and it is another kernel.


def turns(x, y):
    thread = cuda.threadIdx.x
    squares = cuda.shared.array(64, np.float32)
    left = x[cuda.blockIdx.x * 64 + 63 - thread]
    squares[thread] = left * left
    cuda.syncthreads()
    y[cuda.blockIdx.x * 64 + thread] = left + squares[(thread + 1) % 64]
