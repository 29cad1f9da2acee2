// fused_offsets: implicit GEMM that unrolls from shared memory, through a table of offsets.
//
// fused_shared pays a chain of divisions for every element of the unrolled matrix that it gathers.
// Here a block copies the piece of input that all its pixels read, its region of interest, into
// shared memory once. Element (i, pixel) of the unrolled matrix then lies at the pixel's own place
// in the region plus an offset that depends on i alone, so one table serves every pixel of every
// block. All threads want the same entry at the same time: constant memory answers in one step.
//
// The asymmetric tile, 64 x 4 and 4 images, is read as 64 pixels by 4 output channels of each of 4
// images. The 64 pixels are a rectangle of one image's output, so that the region is one as well;
// the host picks the shape of least work. One thread holds the 4 x 4 sums of its pixel. The region
// keeps the 4 images of a position side by side, and the filter the 4 channels of a product, so one
// 16-byte load each feeds 16 multiply-adds. Positions over the edge of the input and images past
// the last hold zeros. Input channels go by in slabs that fit the table and shared memory.
//
// The table travels as a kernel parameter, which lies in constant memory and belongs to its launch:
// no symbol that streams would have to share, and a graph keeps its own copy.
//
// Report C saw 38.4 + 120 ms. What bounds it are the two loads from shared memory per 16
// multiply-adds; with fewer than 4 output channels or images the rest of the tile is idle.
#include "core/estimate.cuh"
#include "core/output.cuh"

#include <cmath>

namespace {

constexpr int Pixels = 64;
constexpr int Channels = 4;
constexpr int Images = 4;
constexpr int Threads = Pixels;
constexpr int TableSize = 896;
constexpr int SlabBytes = 16 << 10; // aimed at: a small block needs many beside it
constexpr int Resident = 14;        // blocks of a multiprocessor
static_assert(Resident * SlabBytes <= 224 << 10, "the shared memory of a multiprocessor");

struct Table {
    int32_t bytes[TableSize]; // from a pixel's own place in the region
};

// Divides by a number that is fixed for a launch: n / d for n * d < 2^32. cf::Divisor takes any n,
// and a shift; with it a kernel here spills.
struct Divisor {
    uint32_t d, inverse;

    Divisor() = default;
    explicit Divisor(uint32_t d) : d(d), inverse(d > 1 ? UINT32_MAX / d + 1 : 0) {}
    __device__ __forceinline__ uint32_t divide(uint32_t n) const {
        return d > 1 ? __umulhi(n, inverse) : n;
    }
};

// How a problem is cut, decided on the host.
struct Cut {
    int tile_rows, tile_columns; // of the 64 pixels
    int rows, columns;           // the same, clipped to the output
    int row_tiles, column_tiles, channel_tiles;
    int area, plane; // of one channel's region: elements, and their distance to the next channel's
    int slab;        // input channels at a time
    Divisor by_width, by_area, by_slab;
};

template <class T, int SumMath>
__global__ void __launch_bounds__(Threads, Resident)
    fused_offsets_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
                         const cf::Out<T> out, int64_t end, const Cut cut,
                         const __grid_constant__ Table table) {
    static_assert(sizeof(cf_problem) + sizeof(out) + sizeof(cut) + sizeof(table) + 24 <= 4096,
                  "kernel parameters that every driver takes");
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    struct alignas(4 * sizeof(Operand)) Quad {
        Operand v[4];
    };
    extern __shared__ __align__(16) unsigned char shared[];
    Quad *const region = reinterpret_cast<Quad *>(shared); // [channel][row][column], 4 images
    Quad *const weights = region + cut.slab * cut.plane;   // [product], 4 output channels

    const cf::Strides xs = cf::input_strides(p);
    const bool nchw = p.layout == CF_NCHW;
    const int tid = threadIdx.x, group = blockIdx.y;
    const int channels = p.k / p.groups, inputs = p.c / p.groups;
    const int taps = p.r * p.s, reduction = inputs * taps, products = cut.slab * taps;
    const int channel0 = int(blockIdx.x % cut.channel_tiles) * Channels;
    const int tile = blockIdx.x / cut.channel_tiles;
    const int row0 = tile / cut.column_tiles * cut.tile_rows;
    const int column0 = tile % cut.column_tiles * cut.tile_columns;
    const int top = row0 * p.stride_h - p.pad_top, left = column0 * p.stride_w - p.pad_left;

    // Threads without a pixel read at the first one's place.
    const int row = tid / cut.tile_columns, column = tid % cut.tile_columns;
    const bool inside = row < cut.rows && column < cut.columns;
    const int place = inside ? row * p.stride_h * int(cut.by_width.d) + column * p.stride_w : 0;
    const char *const mine = reinterpret_cast<const char *>(region + place);

    for (int64_t n = out.first + int64_t(blockIdx.z) * Images; n < end;
         n += int64_t(gridDim.z) * Images) {
        Sum sums[Images][Channels];
        for (int c0 = 0; c0 < inputs; c0 += cut.slab) {
            // Neighbouring threads read neighbouring elements: columns in NCHW, channels in NHWC.
            for (int e = tid; e < cut.slab * cut.area; e += Threads) {
                const int at = nchw ? int(cut.by_area.divide(e)) : int(cut.by_slab.divide(e));
                const int rest = nchw ? e - at * cut.area : e - at * cut.slab;
                const int c = nchw ? at : rest, position = nchw ? rest : at;
                const int i = cut.by_width.divide(position);
                const int h = top + i, w = left + position - i * int(cut.by_width.d);
                const bool there = h >= 0 && h < p.h && w >= 0 && w < p.w && c0 + c < inputs;
                const T *const from = x + xs.at(n, int64_t(group) * inputs + c0 + c, h, w);
                Quad quad;
#pragma unroll
                for (int j = 0; j < Images; ++j) {
                    const T v = there && n + j < end ? from[j * xs.image] : T(0.0f);
                    quad.v[j] = cf::operand<Sum>(v, p.math);
                }
                region[c * cut.plane + position] = quad;
            }
            // Products in the filter's own order: c r s in NCHW, r s c in NHWC.
            for (int i = tid; i < products; i += Threads) {
                const int t = cut.by_slab.divide(i), c = c0 + i - t * cut.slab;
                const int from = nchw ? c0 * taps + i : t * inputs + c;
                const bool there = nchw ? from < reduction : c < inputs;
                Quad quad;
#pragma unroll
                for (int j = 0; j < Channels; ++j) {
                    const int64_t k = int64_t(group) * channels + channel0 + j;
                    const T v =
                        there && channel0 + j < channels ? filter[k * reduction + from] : T(0.0f);
                    quad.v[j] = cf::operand<Sum>(v, p.math);
                }
                weights[i] = quad;
            }
            __syncthreads();
#pragma unroll 4
            for (int i = 0; i < products; ++i) {
                const Quad a = *reinterpret_cast<const Quad *>(mine + table.bytes[i]);
                const Quad b = weights[i];
#pragma unroll
                for (int j = 0; j < Images; ++j)
#pragma unroll
                    for (int k = 0; k < Channels; ++k)
                        sums[j][k].add(a.v[j], b.v[k]);
            }
            __syncthreads();
        }
        if (!inside || row0 + row >= p.p || column0 + column >= p.q)
            continue;
#pragma unroll
        for (int j = 0; j < Images; ++j)
#pragma unroll
            for (int k = 0; k < Channels; ++k)
                if (n + j < end && channel0 + k < channels)
                    out.store(p, n + j, group * channels + channel0 + k, row0 + row,
                              column0 + column, sums[j][k].get());
    }
}

// Bytes of four operands.
int quad_bytes(const cf_problem &p) { return p.math == CF_MATH_F16_ACC ? 8 : 16; }

int64_t shared_bytes(const cf_problem &p, const Cut &cut) {
    return int64_t(cut.slab) * (cut.plane + p.r * p.s) * quad_bytes(p);
}

// Bytes that one input channel takes in a tile of this shape. A double, as strides and dilations
// may be so large that an integer would wrap.
double channel_bytes(const cf_problem &p, const Cut &cut, double *height, double *width) {
    *height = double(cut.rows - 1) * p.stride_h + double(p.r - 1) * p.dilation_h + 1;
    *width = double(cut.columns - 1) * p.stride_w + double(p.s - 1) * p.dilation_w + 1;
    return (*height * *width + 1 + double(p.r) * p.s) * quad_bytes(p);
}

// Answers the bytes that the smallest shape would need where none fits, else 0.
double decide(const cf_call *call, Cut *best) {
    const cf_problem &p = call->problem;
    const int taps = p.r * p.s, quad = quad_bytes(p);
    double least = INFINITY, smallest = INFINITY;
    // At 8 columns and more, the 8 lanes that load 16 bytes each at a time find different banks.
    for (const int columns : {8, 16, 32, 64, 4, 2, 1}) {
        Cut cut;
        cut.tile_columns = columns;
        cut.tile_rows = Pixels / columns;
        cut.rows = std::min(cut.tile_rows, p.p);
        cut.columns = std::min(cut.tile_columns, p.q);
        cut.row_tiles = int(cf::ceil_div(p.p, cut.tile_rows));
        cut.column_tiles = int(cf::ceil_div(p.q, cut.tile_columns));
        double height, width;
        const double bytes = channel_bytes(p, cut, &height, &width);
        smallest = std::min(smallest, bytes);
        if (bytes > call->device.shared_per_block)
            continue;
        // A thread spends some 40 times longer on a product's 16 sums than on an element's copy
        // divided by the 64 threads that share it.
        const double cost = double(cut.row_tiles) * cut.column_tiles * (height * width + 40 * taps);
        if (cost >= least)
            continue;
        least = cost;
        cut.channel_tiles = int(cf::ceil_div(p.k / p.groups, Channels));
        cut.area = int(height) * int(width);
        cut.plane = cut.area | 1; // odd, so that neighbouring channels lie in different banks
        const int inputs = p.c / p.groups;
        const int fit = SlabBytes / quad / (cut.plane + taps);
        const int slab = std::min({inputs, std::max(fit, 1), std::max(TableSize / taps, 1)});
        cut.slab = int(cf::ceil_div(inputs, cf::ceil_div(inputs, slab)));
        cut.by_width = Divisor(uint32_t(width));
        cut.by_area = Divisor(cut.area);
        cut.by_slab = Divisor(cut.slab);
        *best = cut;
    }
    return least < INFINITY ? 0 : smallest;
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.r * p.s > TableSize)
        return cf::no(why, bytes, "has a table of %d offsets; this filter has %d x %d taps",
                      TableSize, p.r, p.s);
    Cut cut;
    if (const double needed = decide(call, &cut))
        return cf::no(why, bytes,
                      "keeps what %d pixels of %d images read of a channel in shared memory, at "
                      "least %.0f bytes here; a block has %d",
                      Pixels, Images, needed, call->device.shared_per_block);
    const double blocks = double(cut.row_tiles) * cut.column_tiles * cut.channel_tiles;
    if (p.groups > cf::MaxGrid || blocks > INT32_MAX)
        return cf::no(why, bytes, "needs a grid of %.0f x %d blocks; the limit is %d x %d", blocks,
                      p.groups, INT32_MAX, cf::MaxGrid);
    return 1;
}

Table offsets(const cf_problem &p, const Cut &cut) {
    const bool nchw = p.layout == CF_NCHW;
    const int taps = p.r * p.s, width = int(cut.by_width.d);
    Table table = {};
    for (int i = 0; i < cut.slab * taps; ++i) {
        const int c = nchw ? i / taps : i % cut.slab, t = nchw ? i % taps : i / cut.slab;
        const int place = t / p.s * p.dilation_h * width + t % p.s * p.dilation_w;
        table.bytes[i] = (c * cut.plane + place) * quad_bytes(p);
    }
    return table;
}

int32_t multiply(const cf_call *call, int64_t first, int64_t count, float *sums) {
    const cf_problem &p = call->problem;
    Cut cut;
    decide(call, &cut);
    const Table table = offsets(p, cut);
    const int bytes = int(shared_bytes(p, cut));
    const dim3 grid(unsigned(cut.row_tiles) * cut.column_tiles * cut.channel_tiles,
                    unsigned(p.groups),
                    unsigned(std::min<int64_t>(cf::ceil_div(count, Images), cf::MaxGrid)));
    return cf::for_storage_and_sum(p, [&](auto storage, auto sum) -> int32_t {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        const auto kernel = fused_offsets_kernel<T, decltype(sum)::value>;
        if (bytes > 48 << 10)
            if (const cudaError_t error = cudaFuncSetAttribute(
                    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
                return error;
        kernel<<<grid, Threads, bytes, cf::stream(call)>>>(
            p, static_cast<const T *>(call->x), static_cast<const T *>(call->w),
            cf::out<T>(call, sums, first), first + count, cut, table);
        return cudaGetLastError();
    });
}

// Assumes that shared memory bounds the sums: 8 clocks for the two 16-byte loads that a warp makes
// per product, and 12 for each element that it copies; 132 multiprocessors at 1750 MHz, kept busy
// by enough blocks. What an output takes beside that is fitted to layers of few channels in f16.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    Cut cut;
    if (decide(call, &cut) > 0)
        return -1;
    const double blocks = double(cut.row_tiles) * cut.column_tiles * cut.channel_tiles * p.groups *
                          double(cf::ceil_div(p.n, Images));
    const double slabs = double(cf::ceil_div(p.c / p.groups, cut.slab));
    const double copied = cf::padded(double(cut.slab) * cut.area, Threads) / Threads;
    const double clocks = slabs * (12 * copied + 8.0 * cut.slab * p.r * p.s) * (Threads / 32);
    const double at_once = std::min(blocks, 132.0);
    return cf::alone_us(p) + blocks * clocks / (at_once * 1750) + cf::pixels(p) * p.k * 5e-6 +
           (p.epilogue.pool_h ? cf::finish_us(p) : 0);
}

int32_t launch(const cf_call *call) {
    return cf::with_sums(call, "fused", [&](int64_t first, int64_t count, float *sums) {
        return multiply(call, first, count, sums);
    });
}

} // namespace

extern "C" const cf_row fused_offsets = {
    "fused_offsets",
    "fused",
    "region of interest in shared memory, unrolled from there through offsets in constant memory; "
    "64 pixels x 4 channels x 4 images",
    "report C",
    80,
    INT32_MAX,
    nullptr, // configs
    supports,
    cf::sums_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
