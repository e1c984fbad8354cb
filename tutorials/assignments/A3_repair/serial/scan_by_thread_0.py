# refused by: scan, scan (hidden)
# Thread 0 goes through all 64 numbers.


def scan(x, y):
    first = cuda.blockIdx.x * 64
    if cuda.threadIdx.x == 0:
        total = ZERO
        for k in range(64):
            total += x[first + k]
            y[first + k] = total
