// The layers around the convolutions of the accuracy study, so that a batch stays on the device
// from pixels to classes. All f32, NCHW; simple on purpose: the convolutions are what is studied.
#include "network.h"

#include "core/launch.cuh"

namespace {

constexpr int Threads = 256;

__global__ void from_bytes(const uint8_t *__restrict__ pixels, float *__restrict__ x,
                           int64_t count) {
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x; i < count; i += step)
        x[i] = float(pixels[i]);
}

__global__ void relu_maxpool(const float *__restrict__ x, float *__restrict__ y, int64_t outputs,
                             int h, int w, int window) {
    const int out_h = (h + window - 1) / window, out_w = (w + window - 1) / window;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x; i < outputs; i += step) {
        const int column = int(i % out_w), row = int(i / out_w % out_h);
        const float *plane = x + i / out_w / out_h * h * w;
        float v = 0; // the ReLU
        for (int a = row * window; a < min((row + 1) * window, h); ++a) {
            for (int b = column * window; b < min((column + 1) * window, w); ++b) {
                const float u = plane[int64_t(a) * w + b];
                v = u <= v ? v : u; // a NaN passes through
            }
        }
        y[i] = v;
    }
}

// One warp per output: lanes walk the inputs together, so that both rows are read contiguously.
__global__ void linear(const float *__restrict__ x, const float *__restrict__ w,
                       const float *__restrict__ bias, float *__restrict__ y, int64_t outputs,
                       int in, int out, bool relu) {
    const int lane = threadIdx.x % 32;
    const int64_t step = int64_t(gridDim.x) * (Threads / 32);
    for (int64_t i = int64_t(blockIdx.x) * (Threads / 32) + threadIdx.x / 32; i < outputs;
         i += step) {
        const int o = int(i % out);
        const float *xs = x + i / out * in, *ws = w + int64_t(o) * in;
        float sum = 0;
        for (int j = lane; j < in; j += 32)
            sum = fmaf(xs[j], ws[j], sum);
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(~0u, sum, offset);
        if (lane == 0) {
            const float v = sum + bias[o];
            y[i] = relu && v <= 0 ? 0.0f : v;
        }
    }
}

} // namespace

int32_t cf_net_from_bytes(const uint8_t *pixels, float *x, int64_t count, void *stream) {
    return cf::launch(from_bytes, cf::blocks(count, Threads), Threads, stream, pixels, x, count);
}

int32_t cf_net_relu_maxpool(const float *x, float *y, int64_t planes, int32_t h, int32_t w,
                            int32_t window, void *stream) {
    const int64_t outputs = planes * cf::ceil_div(h, window) * cf::ceil_div(w, window);
    return cf::launch(relu_maxpool, cf::blocks(outputs, Threads), Threads, stream, x, y, outputs, h,
                      w, window);
}

int32_t cf_net_linear(const float *x, const float *w, const float *bias, float *y, int64_t n,
                      int32_t in, int32_t out, int32_t relu, void *stream) {
    const int64_t outputs = n * out;
    return cf::launch(linear, cf::blocks(outputs * 32, Threads), Threads, stream, x, w, bias, y,
                      outputs, in, out, relu != 0);
}
