/* How long cuBLAS and cuDNN themselves take of a run: put before a program that opens them, it
 * times each call of cublasGemmEx and cudnnBackendExecute and says at the end what the later half
 * took.
 *
 *   cc -O2 -shared -fPIC -o inside.so benches/inside.c -ldl
 *   LD_PRELOAD=./inside.so cargo bench --bench host -- cublas cudnn
 *
 * Both are looked up by dlsym, which is taken over here. For one thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1 << 20 };

struct function {
    const char *name;
    void *real;
    float us[MOST];
    int calls;
};

static struct function gemm = {.name = "cublasGemmEx"}, execute = {.name = "cudnnBackendExecute"};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e6 + at.tv_nsec * 1e-3;
}

static void note(struct function *f, double began) {
    if (f->calls < MOST)
        f->us[f->calls++] = (float)(now() - began);
}

typedef int gemm_fn(void *, int, int, int, int, int, const void *, const void *, int, int,
                    const void *, int, int, const void *, void *, int, int, int, int);

static int timed_gemm(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                      const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                      const void *beta, void *c, int c_type, int ldc, int compute, int algorithm) {
    const double began = now();
    const int status =
        ((gemm_fn *)gemm.real)(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb,
                               beta, c, c_type, ldc, compute, algorithm);
    note(&gemm, began);
    return status;
}

static int timed_execute(void *handle, void *plan, void *pack) {
    const double began = now();
    const int status = ((int (*)(void *, void *, void *))execute.real)(handle, plan, pack);
    note(&execute, began);
    return status;
}

static int ascending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void say(struct function *f) {
    const int count = f->calls - f->calls / 2;
    float *const us = f->us + f->calls / 2;
    qsort(us, count, sizeof(*us), ascending);
    if (count > 0)
        fprintf(stderr, "inside %s: %d calls, median %.2f us (%.2f to %.2f)\n", f->name, count,
                us[count / 2], us[count / 10], us[count * 9 / 10]);
}

static void say_all(void) {
    say(&gemm);
    say(&execute);
}

/* The address of `timed` in place of the function's, which is kept. */
static void *instead(struct function *f, void *found, void *timed) {
    if (found != timed)
        f->real = found;
    return timed;
}

void *dlsym(void *library, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) {
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real)
            real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        atexit(say_all);
    }
    void *const found = real(library, name);
    if (found && strcmp(name, gemm.name) == 0)
        return instead(&gemm, found, (void *)timed_gemm);
    if (found && strcmp(name, execute.name) == 0)
        return instead(&execute, found, (void *)timed_execute);
    return found;
}
