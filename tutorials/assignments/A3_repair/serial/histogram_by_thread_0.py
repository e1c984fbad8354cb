# refused by: histogram, histogram (hidden)
# The first thread of the first block counts all.


def histogram(x, bins):
    if cuda.grid(1) == 0:
        for i in range(x.size):
            cuda.atomic.add(bins, x[i], 1)
