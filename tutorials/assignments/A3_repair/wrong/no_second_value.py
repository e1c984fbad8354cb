# refused by: turns
# The write that races is gone, and with it the squares.


def turns(x, y):
    thread = cuda.threadIdx.x
    first = cuda.blockIdx.x * 64
    buffer = cuda.shared.array(64, np.float32)
    buffer[thread] = x[first + thread]
    cuda.syncthreads()
    left = buffer[63 - thread]
    cuda.syncthreads()
    cuda.syncthreads()
    y[first + thread] = left + buffer[(thread + 1) % 64]
