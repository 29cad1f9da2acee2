/* How long cuBLAS and cuDNN themselves take of a run: put before a program that opens them, it times their calls
 * that enqueue, cublasGemmEx, cublasGemmStridedBatchedEx and cudnnBackendExecute. benches/host.rs asks it.
 *
 *   cc -O2 -shared -fPIC -o inside.so benches/inside.c -ldl
 *   LD_PRELOAD=./inside.so cargo bench --bench host -- cublas cudnn
 *
 * They are looked up by dlsym, which is taken over here. For one thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>

static double spent;
static int skipped;

/* Microseconds that these calls took since this was asked last. */
double inside_us(void) {
    const double us = spent;
    spent = 0;
    return us;
}

/* Whether they do nothing and say that all is well, so that what a run enqueues besides can be recorded. */
void inside_skip(int skip) { skipped = skip; }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e6 + at.tv_nsec * 1e-3;
}

typedef int gemm_fn(void *, int, int, int, int, int, const void *, const void *, int, int,
                    const void *, int, int, const void *, void *, int, int, int, int);
typedef int batched_fn(void *, int, int, int, int, int, const void *, const void *, int, int,
                       long long, const void *, int, int, long long, const void *, void *, int, int,
                       long long, int, int, int);
typedef int execute_fn(void *, void *, void *);

static gemm_fn *real_gemm;
static batched_fn *real_batched;
static execute_fn *real_execute;

/* The answer of a call, which is timed. */
#define TIMED(call)                                                                                \
    if (skipped)                                                                                   \
        return 0;                                                                                  \
    const double began = now();                                                                    \
    const int status = call;                                                                       \
    spent += now() - began;                                                                        \
    return status

static int timed_gemm(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                      const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                      const void *beta, void *c, int c_type, int ldc, int compute, int algorithm) {
    TIMED(real_gemm(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
                    c_type, ldc, compute, algorithm));
}

static int timed_batched(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                         const void *a, int a_type, int lda, long long step_a, const void *b,
                         int b_type, int ldb, long long step_b, const void *beta, void *c,
                         int c_type, int ldc, long long step_c, int count, int compute,
                         int algorithm) {
    TIMED(real_batched(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, step_a, b, b_type, ldb,
                       step_b, beta, c, c_type, ldc, step_c, count, compute, algorithm));
}

static int timed_execute(void *handle, void *plan, void *pack) {
    TIMED(real_execute(handle, plan, pack));
}

static const struct function {
    const char *name;
    void *timed;
    void **real;
} functions[] = {
    {"cublasGemmEx", (void *)timed_gemm, (void **)&real_gemm},
    {"cublasGemmStridedBatchedEx", (void *)timed_batched, (void **)&real_batched},
    {"cudnnBackendExecute", (void *)timed_execute, (void **)&real_execute},
};

void *dlsym(void *library, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) {
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real)
            real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    void *const found = real(library, name);
    for (size_t i = 0; found && i < sizeof(functions) / sizeof(*functions); i++)
        if (strcmp(name, functions[i].name) == 0) {
            *functions[i].real = found;
            return functions[i].timed;
        }
    return found;
}
