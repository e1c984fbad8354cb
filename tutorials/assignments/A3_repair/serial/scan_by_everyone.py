# refused by: scan, scan (hidden)
# Each thread adds up everything before it.


def scan(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    total = ZERO
    for k in range(thread + 1):
        total += s[k]
    y[cuda.grid(1)] = total
