# refused by: histogram, histogram (hidden)
# A thread for each number goes through all of x.


def histogram(x, bins):
    thread = cuda.threadIdx.x
    if cuda.blockIdx.x == 0 and thread < 8:
        count = 0
        for i in range(x.size):
            if x[i] == thread:
                count += 1
        cuda.atomic.add(bins, thread, count)
