/* One convolution with bias and relu, on the CPU or on GPU 0, and what plain loops make of it. The
 * data are small whole numbers, so that both must agree in every bit.
 *
 *     cc -I include examples/convolve.c -L DIR -lconvforge_c -o convolve      DIR has the library
 *     ./convolve
 *
 * With -DCONVOLVE_CUDA, the toolkit's cuda.h and -lcuda, `./convolve --gpu` takes its device memory
 * and its stream from the CUDA driver. */
#include <convforge.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CONVOLVE_CUDA
#include <cuda.h>
#endif

enum { N = 2, C = 3, H = 8, W = 8, K = 4, R = 3, PAD = 1, P = H, Q = W };
#define PROBLEM "mb2ic3ih8oc4oh8kh3ph1+bias+relu"

enum { X_LEN = N * C * H * W, W_LEN = K * C * R * R, Y_LEN = N * K * P * Q };

/* Ends the program where a call of the library failed. */
static void must(convforge_status status) {
    if (status != CONVFORGE_OK) {
        fprintf(stderr, "convolve: %s\n", convforge_last_error(NULL));
        exit(1);
    }
}

#ifdef CONVOLVE_CUDA
static void cuda(CUresult result) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "convolve: the CUDA driver answers %d\n", (int)result);
        exit(1);
    }
}

static CUstream stream;

/* The primary context is the one in which the library works. */
static void start_gpu(void) {
    CUdevice device;
    CUcontext context;
    cuda(cuInit(0));
    cuda(cuDeviceGet(&device, 0));
    cuda(cuDevicePrimaryCtxRetain(&context, device));
    cuda(cuCtxPushCurrent(context));
    cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}
#else
static void *const stream = NULL;
#endif

/* What was taken of the host's memory. */
static void *taken[8];
static int takings;

/* Memory of the device, at a multiple of CONVFORGE_ALIGN bytes. A GPU's ends with the program. */
static void *take(int on_gpu, size_t bytes) {
    char *memory;
    if (bytes == 0)
        return NULL;
#ifdef CONVOLVE_CUDA
    if (on_gpu) {
        CUdeviceptr address;
        cuda(cuMemAlloc(&address, bytes));
        return (void *)(size_t)address;
    }
#endif
    (void)on_gpu;
    memory = (char *)malloc(bytes + CONVFORGE_ALIGN);
    if (!memory)
        exit(1);
    taken[takings++] = memory;
    return memory + (CONVFORGE_ALIGN - (size_t)memory % CONVFORGE_ALIGN) % CONVFORGE_ALIGN;
}

static void copy_in(int on_gpu, void *device, const void *host, size_t bytes) {
#ifdef CONVOLVE_CUDA
    if (on_gpu) {
        cuda(cuMemcpyHtoDAsync((CUdeviceptr)(size_t)device, host, bytes, stream));
        cuda(cuStreamSynchronize(stream));
        return;
    }
#endif
    (void)on_gpu;
    memcpy(device, host, bytes);
}

/* Behind what is queued on the stream. */
static void copy_out(int on_gpu, void *host, const void *device, size_t bytes) {
#ifdef CONVOLVE_CUDA
    if (on_gpu) {
        cuda(cuMemcpyDtoHAsync(host, (CUdeviceptr)(size_t)device, bytes, stream));
        cuda(cuStreamSynchronize(stream));
        return;
    }
#endif
    (void)on_gpu;
    memcpy(host, device, bytes);
}

/* One output by plain loops. */
static float expected(const float *x, const float *w, const float *bias, int n, int k, int p,
                      int q) {
    float sum = bias[k];
    int c, r, s;
    for (c = 0; c < C; c++)
        for (r = 0; r < R; r++)
            for (s = 0; s < R; s++) {
                int h = p + r - PAD, v = q + s - PAD;
                if (h >= 0 && h < H && v >= 0 && v < W)
                    sum += x[((n * C + c) * H + h) * W + v] * w[((k * C + c) * R + r) * R + s];
            }
    return sum > 0 ? sum : 0;
}

static int wrong(const float *x, const float *w, const float *bias, const float *y) {
    int n, k, p, q, count = 0;
    for (n = 0; n < N; n++)
        for (k = 0; k < K; k++)
            for (p = 0; p < P; p++)
                for (q = 0; q < Q; q++)
                    /* So that NaN is wrong too. */
                    if (!(y[((n * K + k) * P + p) * Q + q] == expected(x, w, bias, n, k, p, q)))
                        count++;
    return count;
}

int main(int argc, char **argv) {
    static float x[X_LEN], w[W_LEN], bias[K], y[Y_LEN];
    convforge_device *device;
    convforge_plan *plan;
    convforge_workspace *workspace;
    convforge_operands on_device;
    size_t packed_bytes, workspace_bytes;
    void *x_there, *w_there, *bias_there, *packed;
    int i, count, on_gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;

#ifdef CONVOLVE_CUDA
    if (on_gpu)
        start_gpu();
#else
    if (on_gpu) {
        fprintf(stderr, "convolve: built without CONVOLVE_CUDA\n");
        return 2;
    }
#endif
    for (i = 0; i < X_LEN; i++)
        x[i] = (float)(i % 7 - 3);
    for (i = 0; i < W_LEN; i++)
        w[i] = (float)(i % 5 - 2);
    for (i = 0; i < K; i++)
        bias[i] = (float)i;
    for (i = 0; i < Y_LEN; i++)
        y[i] = -1;

    /* Decided once. */
    must(convforge_device_open(on_gpu ? 0 : CONVFORGE_CPU, &device));
    must(convforge_plan_create(device, PROBLEM, NULL, &plan));
    must(convforge_plan_bytes(plan, CONVFORGE_PACKED, &packed_bytes));
    must(convforge_plan_bytes(plan, CONVFORGE_WORKSPACE, &workspace_bytes));
    must(convforge_workspace_create(plan, stream, take(on_gpu, workspace_bytes), workspace_bytes,
                                    &workspace));

    /* Once per filter. */
    x_there = take(on_gpu, sizeof x);
    w_there = take(on_gpu, sizeof w);
    bias_there = take(on_gpu, sizeof bias);
    packed = take(on_gpu, packed_bytes);
    copy_in(on_gpu, w_there, w, sizeof w);
    must(convforge_pack(plan, workspace, w_there, packed));

    /* Any number of times. */
    memset(&on_device, 0, sizeof on_device);
    on_device.x = x_there;
    on_device.w = w_there;
    on_device.y = take(on_gpu, sizeof y);
    on_device.packed = packed;
    on_device.bias = (const float *)bias_there;
    copy_in(on_gpu, x_there, x, sizeof x);
    copy_in(on_gpu, bias_there, bias, sizeof bias);
    copy_in(on_gpu, on_device.y, y, sizeof y);
    must(convforge_run(plan, workspace, &on_device));
    copy_out(on_gpu, y, on_device.y, sizeof y);

    count = wrong(x, w, bias, y);
    printf("convforge %s: %s by %s (%s): %d of %d outputs are wrong\n", convforge_version(),
           PROBLEM, convforge_plan_name(plan), convforge_plan_reason(plan), count, (int)Y_LEN);
    must(convforge_workspace_destroy(workspace));
    must(convforge_plan_destroy(plan));
    must(convforge_device_close(device));
    while (takings > 0)
        free(taken[--takings]);
    return count != 0;
}
