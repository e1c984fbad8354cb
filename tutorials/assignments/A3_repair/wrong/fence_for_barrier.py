# refused by: turns
# A fence orders one thread's writes. It waits for nobody.


def turns(x, y):
    thread = cuda.threadIdx.x
    first = cuda.blockIdx.x * 64
    buffer = cuda.shared.array(64, np.float32)
    buffer[thread] = x[first + thread]
    cuda.syncthreads()
    left = buffer[63 - thread]
    cuda.threadfence_block()
    buffer[thread] = left * left
    cuda.syncthreads()
    y[first + thread] = left + buffer[(thread + 1) % 64]
