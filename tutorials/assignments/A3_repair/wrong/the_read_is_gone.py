# refused by: scan
# The read that races never happens, and the sums are not made.


def scan(x, y):
    thread = cuda.threadIdx.x
    old = cuda.shared.array(64, np.float32)
    new = cuda.shared.array(64, np.float32)
    old[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    for step in (1, 2, 4, 8, 16, 32):
        new[thread] = old[thread] + (old[thread - step] if thread >= step + 64 else ZERO)
        cuda.syncthreads()
        old, new = new, old
    y[cuda.grid(1)] = old[thread]
