/* A libcuda that has nothing of its own: whatever is asked for by name, a resolver in Python gives (fake_cuda.py). */
typedef void *(*resolver_t)(const char *name);
static resolver_t resolver;

void minisitch_set_resolver(resolver_t given) { resolver = given; }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void)version; (void)flags;
    *function = resolver ? resolver(name) : 0;
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
