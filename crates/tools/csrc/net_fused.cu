// The network of the accuracy study with its layers fused: a block takes images one after another
// and keeps what lies between the layers in shared memory, so device memory sees the pixels, 5 KB
// of features per image and the logits.
//
// Both convolutions run on tensor cores at fp32's accuracy: a number is the sum of a high and a low
// f16, and of the four products of two such numbers the three large ones are made. Powers of two,
// chosen from the weights when they are packed, keep every operand below f16's limit of 65504 and
// so far above its smallest numbers that the low parts are whole; they leave the sums exactly.
//
// First convolution: the rows of A are 4 channels x the 2x2 outputs of a pooling window, the sum
// goes over the 8x8 pixels that the four see (49 of 64 weights are not zero), the columns of B are
// 8 windows side by side. Pixels are whole in f16, so two products do.
// Second: the rows of A are the 16 channels, a step of the sum is 4 pixels x 4 channels, and the
// columns of B are 8 pixels.
#include "network.h"

#include "core/launch.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mma.cuh"

#include <cuda_fp16.h>

namespace {

constexpr int Side = 86, Pixels = CF_FUSED_PIXELS;
constexpr int Filter = 7, C = 4, K = 16;
constexpr int Inner = 40, Outer = 9; // sides of what the poolings leave
constexpr int Windows = Outer * Outer, Features = CF_FUSED_FEATURES, Hidden = 32, Classes = 10;
static_assert(Pixels == Side * Side && Features == Windows * K);

constexpr int Warps = 8, Threads = 32 * Warps, PackThreads = 1024;

// Bytes of the span, aligned to 16 bytes for bulk copies, that an image lies in. Images start at
// multiples of 4 bytes.
constexpr int Window = 7408;
static_assert(Window % 16 == 0 && Window >= Pixels + 12);

// The weights as the kernels read them. Of a 16x16 tile of A, lane l has the uint4 number l.
struct Packed {
    uint4 conv1[4][2][32];          // [step][high, low]
    uint4 conv2[Filter][2][2][32];  // [r][step][high, low]
    uint4 fc1[Windows][2][2][32];   // [window][outputs from 0, from 16][high, low]
    float rescale1[C], rescale2[K]; // from sums to the next layer's operands
    int exponent[Hidden];           // of two; from the third sums to what they are of
    float fc1_bias[Hidden];
    float fc2[Classes][Hidden], fc2_bias[Classes];
};

// The exponent that scales numbers of at most `largest` below 2^15.
__device__ int exponent_for(double largest) { return largest > 0 ? 14 - ilogb(largest) : 0; }

// Two numbers next to each other in a register, each as its high or its low part.
__device__ uint32_t part(double first, double second, bool low) {
    const auto of = [&](double v) {
        const __half high = __double2half(v);
        return low ? __double2half(v - double(__half2float(high))) : high;
    };
    const __half2 both = __halves2half2(of(first), of(second));
    return reinterpret_cast<const uint32_t &>(both);
}

// One block. A layer's weights are scaled per output, after what its inputs are scaled by was taken
// from them: `made` is the exponent of a layer's outputs as the next one reads them.
__global__ void __launch_bounds__(PackThreads) pack(cf_fused_weights from, Packed *to) {
    constexpr int Taps = Filter * Filter;
    __shared__ int scale1[C], made1[C], scale2[K], made2[K], scale3[Hidden];
    const int id = threadIdx.x;
    const auto w1 = [&](int c, int tap) { return double(from.conv1[c * Taps + tap]); };
    const auto w2 = [&](int k, int c, int tap) {
        return scalbn(double(from.conv2[(k * C + c) * Taps + tap]), -made1[c]);
    };
    const auto w3 = [&](int out, int window, int k) {
        return scalbn(double(from.fc1_weight[(out * K + k) * Windows + window]), -made2[k]);
    };
    if (id < C) {
        double largest = 0, sum = 0;
        for (int tap = 0; tap < Taps; ++tap) {
            largest = fmax(largest, fabs(w1(id, tap)));
            sum += fabs(w1(id, tap));
        }
        scale1[id] = exponent_for(largest);
        made1[id] = exponent_for(255 * sum);
        to->rescale1[id] = float(scalbn(1.0, made1[id] - scale1[id]));
    }
    __syncthreads();
    if (id < K) {
        double largest = 0, sum = 0;
        for (int i = 0; i < C * Taps; ++i) {
            largest = fmax(largest, fabs(w2(id, i / Taps, i % Taps)));
            sum += fabs(w2(id, i / Taps, i % Taps));
        }
        scale2[id] = exponent_for(largest);
        made2[id] = exponent_for(32768 * sum);
        to->rescale2[id] = float(scalbn(1.0, made2[id] - scale2[id]));
    }
    __syncthreads();
    if (id < Hidden) {
        double largest = 0;
        for (int i = 0; i < Features; ++i)
            largest = fmax(largest, fabs(w3(id, i / K, i % K)));
        scale3[id] = exponent_for(largest);
        to->exponent[id] = -scale3[id];
    }
    __syncthreads();

    // Lane l = 4 g + t of A has, of rows g and g + 8, the numbers 2 t and 2 t + 1 of the sum, and
    // those 8 further on; a register's place among the four is word.
    auto *conv1 = reinterpret_cast<uint32_t *>(to->conv1);
    for (int i = id; i < int(sizeof to->conv1 / 4); i += blockDim.x) {
        const int word = i % 4, t = i / 4 % 4, g = i / 16 % 8, low = i / 128 % 2, step = i / 256;
        // Output (word % 2, g % 2) of a window sees pixel row 2 step + word / 2, columns 2 t and
        // on.
        const int c = g / 2, r = 2 * step + word / 2 - word % 2, s = 2 * t - g % 2;
        const auto w = [&](int s) {
            const bool inside = r >= 0 && r < Filter && s >= 0 && s < Filter;
            return inside ? scalbn(w1(c, r * Filter + s), scale1[c]) : 0.0;
        };
        conv1[i] = part(w(s), w(s + 1), low);
    }
    // Below, the two pairs of the reduction that lane t holds are the channels of one pixel: 4 of
    // pixel t, then 4 of the window's 16.
    auto *conv2 = reinterpret_cast<uint32_t *>(to->conv2);
    for (int i = id; i < int(sizeof to->conv2 / 4); i += blockDim.x) {
        const int word = i % 4, t = i / 4 % 4, g = i / 16 % 8, low = i / 128 % 2;
        const int step = i / 256 % 2, r = i / 512;
        const int k = g + 8 * (word % 2), c = word / 2 * 2, s = 4 * step + t;
        const auto w = [&](int c) {
            return s < Filter ? scalbn(w2(k, c, r * Filter + s), scale2[k]) : 0.0;
        };
        conv2[i] = part(w(c), w(c + 1), low);
    }
    auto *fc1 = reinterpret_cast<uint32_t *>(to->fc1);
    for (int i = id; i < int(sizeof to->fc1 / 4); i += blockDim.x) {
        const int word = i % 4, t = i / 4 % 4, g = i / 16 % 8, low = i / 128 % 2;
        const int upper = i / 256 % 2, window = i / 512;
        const int out = 16 * upper + g + 8 * (word % 2), k = 4 * t + word / 2 * 2;
        const auto w = [&](int k) { return scalbn(w3(out, window, k), scale3[out]); };
        fc1[i] = part(w(k), w(k + 1), low);
    }
    for (int i = id; i < Classes * Hidden; i += blockDim.x)
        to->fc2[i / Hidden][i % Hidden] = from.fc2_weight[i];
    if (id < Hidden)
        to->fc1_bias[id] = from.fc1_bias[id];
    if (id < Classes)
        to->fc2_bias[id] = from.fc2_bias[id];
}

using Sums = cf::Fragment<__half, float>;

__device__ __forceinline__ void fetch(uint32_t (&to)[4], const uint4 &from) {
    const uint4 v = from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// The second convolution's input. A pixel behind the last is read, times a weight of zero.
using Inputs = uint4[Inner * Inner + 1];

// A ring of stages with an image each: one is in the second convolution while another leaves or
// enters the first, so that a warp is seldom waited for.
constexpr int Stages = 3;

struct Shared {
    uint8_t window[Stages][Window];
    Inputs x[Stages];
    cf::Barrier window_full[Stages], x_full[Stages], x_empty[Stages];
};

// The pairs of pooled rows that each warp makes of the first convolution. The work of the second
// does not divide by 8; with these shares each warp issues 912 to 996 products per image.
[[maybe_unused]] __constant__ const int8_t FirstPair[Warps + 1] = {0, 1, 2, 5, 8, 11, 14, 17, 20};

#if CF_SM90
// Four channels of a pixel: their high parts, then their low parts.
__device__ __forceinline__ void store(uint4 *to, int channel, float v) {
    auto *halves = reinterpret_cast<__half *>(to);
    const __half high = __float2half(v);
    halves[channel] = high;
    halves[4 + channel] = __float2half(v - __half2float(high));
}

// Convolution, ReLU, pooling of pooled rows first to last, an even number of them.
__device__ __forceinline__ void first_layer(const uint8_t *image, Inputs &x, int first, int last,
                                            const uint32_t (&w)[4][2][4], float rescale) {
    constexpr int Tiles = Inner / 8; // of 8 windows
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Row i holds of the pixels two that are next to each other, from the window number g.
    uint32_t pixels[Tiles][10];
    const uint8_t *from = image + 2 * first * Side + 2 * (g + t);
    const auto load = [&](int tile, int row) {
        const uint32_t bytes = *reinterpret_cast<const uint16_t *>(from + row * Side + 16 * tile);
        // The f16 of bits 0x6400 + p is 1024 + p.
        const uint32_t shifted = __byte_perm(bytes, 0x64646464, 0x4140);
        const __half2 both = __hsub2(reinterpret_cast<const __half2 &>(shifted),
                                     __half2half2(__ushort_as_half(0x6400)));
        return reinterpret_cast<const uint32_t &>(both);
    };
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
        for (int row = 0; row < 6; ++row)
            pixels[tile][row + 4] = load(tile, row);
    from += 6 * Side;
#pragma unroll 1
    for (int row = first; row < last; row += 2, from += 4 * Side) {
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
            for (int i = 0; i < 10; ++i)
                pixels[tile][i] = i < 6 ? pixels[tile][i + 4] : load(tile, i - 6);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Sums sums[Tiles];
            // The small products first: fewer bits of them are lost.
#pragma unroll
            for (int low = 1; low >= 0; --low)
#pragma unroll
                for (int step = 0; step < 4; ++step)
#pragma unroll
                    for (int tile = 0; tile < Tiles; ++tile) {
                        const int at = 2 * half + 2 * step;
                        sums[tile].add(w[step][low], {pixels[tile][at], pixels[tile][at + 1]});
                    }
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile) {
                // Windows 2 t and 2 t + 1, of each one column of two outputs. The lane 4 away has
                // the other columns; each of the two finishes one window.
                const float(&v)[4] = sums[tile].value;
                const float even = fmaxf(v[0], v[2]), odd = fmaxf(v[1], v[3]);
                const bool right = g % 2;
                const float other = __shfl_xor_sync(~0u, right ? even : odd, 4);
                const float y = fmaxf(fmaxf(right ? odd : even, other), 0) * rescale;
                auto *to =
                    reinterpret_cast<__half *>(&x[(row + half) * Inner + 8 * tile + 2 * t + g % 2]);
                const __half high = __float2half(y);
                to[g / 2] = high;
                to[C + g / 2] = __float2half(y - __half2float(high));
            }
        }
    }
}

// Convolution, ReLU, pooling of `Rows` output rows in 8 columns: `from` is the first pixel that
// lane 4 g + t sees for column g, tap t. Answers for channels g and g + 8 the maximum over the rows
// and over columns 2 t and 2 t + 1.
template <int Rows>
__device__ __forceinline__ float2 second_layer(const uint4 *from,
                                               const uint32_t (&w)[Filter][2][2][4]) {
    // The large products and the small ones apart. In each round every output row has its next row
    // of the filter, beginning with another one, so that all sums always grow side by side.
    Sums sums[Rows], small[Rows];
#pragma unroll
    for (int i = 0; i < Filter; ++i) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const uint4 here = from[i * Inner + 4 * step];
            const uint4 below = i < Rows - 1 ? from[(i + Filter) * Inner + 4 * step] : uint4{};
#pragma unroll
            for (int product = 0; product < 3; ++product)
#pragma unroll
                for (int y = 0; y < Rows; ++y) {
                    const uint4 x = y <= i ? here : below;
                    const auto &a = w[(i - y + Filter) % Filter][step];
                    if (product == 0)
                        small[y].add(a[0], {x.z, x.w});
                    else if (product == 1)
                        sums[y].add(a[0], {x.x, x.y});
                    else
                        small[y].add(a[1], {x.x, x.y});
                }
        }
    }
    float2 most = {0, 0}; // the ReLU
#pragma unroll
    for (int y = 0; y < Rows; ++y) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            most.x = fmaxf(most.x, sums[y].value[i] + small[y].value[i]);
            most.y = fmaxf(most.y, sums[y].value[2 + i] + small[y].value[2 + i]);
        }
    }
    return most;
}

// Two windows of full width side by side: window row `row`, windows 2 pair and 2 pair + 1.
template <int Rows>
__device__ __forceinline__ void wide(const Inputs &x, int row, int pair, uint4 *features,
                                     const uint32_t (&w)[Filter][2][2][4],
                                     const float (&rescale)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float2 most = second_layer<Rows>(&x[4 * row * Inner + 8 * pair + g + t], w);
    // A window's other two columns are in the lane beside; each of the two finishes a channel.
    const bool upper = t % 2;
    const float other = __shfl_xor_sync(~0u, upper ? most.x : most.y, 1);
    const int k = g + 8 * upper, window = row * Outer + 2 * pair + t / 2;
    store(&features[window * (K / 4) + k / 4], k % 4,
          fmaxf(upper ? most.y : most.x, other) * (upper ? rescale[1] : rescale[0]));
}

// The last windows of four window rows, which are two columns wide: columns of B are their 8
// columns. Rows below the last are not there, and what stands for them is not stored.
template <int Rows>
__device__ __forceinline__ void narrow(const Inputs &x, int row, uint4 *features,
                                       const uint32_t (&w)[Filter][2][2][4],
                                       const float (&rescale)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int from = min(row + g / 2, Outer - 1);
    const float2 most = second_layer<Rows>(&x[4 * from * Inner + 4 * (Outer - 1) + g % 2 + t], w);
    if (row + t < Outer) {
        uint4 *to = features + ((row + t) * Outer + Outer - 1) * (K / 4) + g / 4;
        store(to, g % 4, most.x * rescale[0]);
        store(to + 2, g % 4, most.y * rescale[1]);
    }
}

// Work of the second convolution, a tile a warp: 32 wide and 2 narrow tiles with 4 rows; 4 wide and
// 1 narrow one with the 2 rows that are left below.
__device__ __forceinline__ void second_layers(const Inputs &x, uint4 *features,
                                              const uint32_t (&w)[Filter][2][2][4],
                                              const float (&rescale)[2]) {
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int tile = warp; tile < 34; tile += Warps) {
        if (tile < 32)
            wide<4>(x, tile / 4, tile % 4, features, w, rescale);
        else
            narrow<4>(x, 4 * (tile - 32), features, w, rescale);
    }
    if (warp >= 2 && warp < 6)
        wide<2>(x, Outer - 1, warp - 2, features, w, rescale);
    else if (warp == 6)
        narrow<2>(x, Outer - 1, features, w, rescale);
}
#endif

// Pixels to features. Warps wait for each other at barriers of stages only, an image or two behind.
__global__ void __launch_bounds__(Threads, 1)
    convolutions(const uint8_t *__restrict__ pixels, int64_t n, const Packed *__restrict__ packed,
                 uint4 *__restrict__ features) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int count = int((n - blockIdx.x + gridDim.x - 1) / gridDim.x);
    const auto address = [&](int i) {
        return reinterpret_cast<uint64_t>(pixels + (blockIdx.x + int64_t(i) * gridDim.x) * Pixels);
    };
    const auto load = [&](int i) {
        if (i < count) {
            cf::Barrier &full = shared.window_full[i % Stages];
            full.arrive_and_expect(Window);
            cf::copy_bulk(cf::shared_address(shared.window[i % Stages]),
                          reinterpret_cast<const void *>(address(i) / 16 * 16), Window, full);
        }
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < Stages; ++i) {
            shared.window_full[i].init(1);
            shared.x_full[i].init(Threads);
            shared.x_empty[i].init(Threads);
            shared.x[i][Inner * Inner] = {0, 0, 0, 0};
        }
        cf::publish_barriers();
        for (int i = 0; i < Stages; ++i)
            load(i);
    }

    uint32_t w1[4][2][4], w2[Filter][2][2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        fetch(w1[i / 2][i % 2], packed->conv1[i / 2][i % 2][lane]);
#pragma unroll
    for (int i = 0; i < 4 * Filter; ++i)
        fetch(w2[i / 4][i / 2 % 2][i % 2], packed->conv2[i / 4][i / 2 % 2][i % 2][lane]);
    const float rescale1 = packed->rescale1[g / 2];
    const float rescale2[2] = {packed->rescale2[g], packed->rescale2[g + 8]};
    const int first = 2 * FirstPair[warp], last = 2 * FirstPair[warp + 1];
    // Warps w and w + 4 share a tensor core: one is in the first convolution, which does not keep
    // it busy, while the other is in the second.
    const int ahead = warp < Warps / 2 ? 2 : 3;
    const auto make = [&](int i) {
        if (i >= count)
            return;
        const int stage = i % Stages, round = i / Stages;
        shared.window_full[stage].wait(round % 2);
        if (round > 0)
            shared.x_empty[stage].wait((round - 1) % 2);
        first_layer(shared.window[stage] + address(i) % 16, shared.x[stage], first, last, w1,
                    rescale1);
        shared.x_full[stage].arrive();
    };

    __syncthreads();
#pragma unroll 1
    for (int i = -ahead; i < count; ++i) {
        if (i >= 0) {
            const int stage = i % Stages;
            shared.x_full[stage].wait(i / Stages % 2);
            if (threadIdx.x == 0)
                load(i + Stages);
            const int64_t image = blockIdx.x + int64_t(i) * gridDim.x;
            second_layers(shared.x[stage], features + image * (Features / 4), w2, rescale2);
            shared.x_empty[stage].arrive();
        }
        make(i + ahead);
    }
#else
    cf::not_compiled();
#endif
}

// Features to logits, for 16 images per block, which are the columns of B; a step of the sum is the
// channels of one window. Each warp sums its share of the windows.
constexpr int Group = 16;

__global__ void __launch_bounds__(Threads)
    fully_connected(const uint4 *__restrict__ features, int64_t n,
                    const Packed *__restrict__ packed, float *__restrict__ logits) {
    __shared__ float part[Warps][Hidden][Group + 2];
    __shared__ float hidden[Group][Hidden + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t first = int64_t(blockIdx.x) * Group;
    const int count = int(min(n - first, int64_t(Group)));
    const uint4 *x[2];
    for (int i = 0; i < 2; ++i)
        x[i] = features + (first + min(g + 8 * i, count - 1)) * (Features / 4) + t;

    Sums sums[2][2], small[2][2]; // [outputs from 0, from 16][images from 0, from 8]
#pragma unroll 4
    for (int window = warp; window < Windows; window += Warps) {
        uint32_t a[2][2][4];
        uint4 b[2];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            fetch(a[i / 2][i % 2], packed->fc1[window][i / 2][i % 2][lane]);
#pragma unroll
        for (int i = 0; i < 2; ++i)
            b[i] = x[i][window * (K / 4)];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int out = i / 2, image = i % 2;
            small[out][image].add(a[out][0], {b[image].z, b[image].w});
            sums[out][image].add(a[out][0], {b[image].x, b[image].y});
            small[out][image].add(a[out][1], {b[image].x, b[image].y});
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            part[warp][16 * (i / 2) + g + 8 * (j / 2)][8 * (i % 2) + 2 * t + j % 2] =
                sums[i / 2][i % 2].value[j] + small[i / 2][i % 2].value[j];
    __syncthreads();
    for (int i = threadIdx.x; i < Group * Hidden; i += Threads) {
        const int image = i % Group, out = i / Group;
        float v = 0;
        for (int j = 0; j < Warps; ++j)
            v += part[j][out][image];
        v = ldexpf(v, packed->exponent[out]) + packed->fc1_bias[out];
        hidden[image][out] = v <= 0 ? 0 : v; // a NaN passes through
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * Classes; i += Threads) {
        float v = packed->fc2_bias[i % Classes];
        for (int j = 0; j < Hidden; ++j)
            v = fmaf(hidden[i / Classes][j], packed->fc2[i % Classes][j], v);
        logits[first * Classes + i] = v;
    }
}

// One block per multiprocessor, which walks images.
auto convolutions_on(unsigned blocks) {
    return cf::kernel_of(convolutions, blocks, Threads, sizeof(Shared));
}

} // namespace

int32_t cf_net_fused_needs(void) { return CF_NEEDS_SM90; }

int32_t cf_net_fused_prepare(void) {
    if (const int32_t error = cf::kernel_of(pack, 1, PackThreads).prepare())
        return error;
    if (const int32_t error = convolutions_on(1).prepare())
        return error;
    return cf::kernel_of(fully_connected, 1, Threads).prepare();
}

uint64_t cf_net_fused_packed_bytes(void) { return sizeof(Packed); }

int32_t cf_net_fused_pack(const cf_fused_weights *weights, void *packed, void *stream) {
    return cf::launch(pack, 1, PackThreads, stream, *weights, packed);
}

int32_t cf_net_fused(const uint8_t *pixels, int64_t n, const void *packed, void *features,
                     float *logits, int32_t sm_count, void *stream) {
    if (n == 0)
        return 0;
    const auto blocks = unsigned(std::min<int64_t>(n, sm_count));
    if (const int32_t error = convolutions_on(blocks).launch(stream, pixels, n, packed, features))
        return error;
    return cf::launch(fully_connected, unsigned(cf::ceil_div(n, Group)), Threads, stream, features,
                      n, packed, logits);
}
