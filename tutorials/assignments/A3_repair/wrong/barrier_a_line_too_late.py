# refused by: turns
# The barrier stands behind the write that it should hold back.


def turns(x, y):
    thread = cuda.threadIdx.x
    first = cuda.blockIdx.x * 64
    buffer = cuda.shared.array(64, np.float32)
    buffer[thread] = x[first + thread]
    cuda.syncthreads()
    left = buffer[63 - thread]
    buffer[thread] = left * left
    cuda.syncthreads()
    cuda.syncthreads()
    y[first + thread] = left + buffer[(thread + 1) % 64]
