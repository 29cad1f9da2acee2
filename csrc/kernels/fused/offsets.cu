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
#include "kernels/fused/grid.cuh"

#include <cmath>

namespace {

constexpr int Pixels = 64;
constexpr int Channels = 4;
constexpr int Images = 4;
constexpr int Threads = Pixels;
constexpr int TableSize = 896;
constexpr int SlabBytes = 16 << 10; // aimed at: a small block needs many beside it
constexpr int Resident = 14;        // blocks of a multiprocessor, by their registers
static_assert(Resident * SlabBytes <= 224 << 10, "the shared memory of one of sm_90");

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

// What a plan decides of a problem.
struct Tiling {
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
                         const cf::Output out, int64_t end, const Tiling tiling,
                         const __grid_constant__ Table table) {
    static_assert(sizeof(cf_problem) + sizeof(out) + sizeof(tiling) + sizeof(table) + 24 <= 4096,
                  "kernel parameters that every driver takes");
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    struct alignas(4 * sizeof(Operand)) Quad {
        Operand v[4];
    };
    extern __shared__ __align__(16) unsigned char shared[];
    Quad *const region = reinterpret_cast<Quad *>(shared);     // [channel][row][column], 4 images
    Quad *const weights = region + tiling.slab * tiling.plane; // [product], 4 output channels

    const cf::Strides xs = cf::input_strides(p);
    const bool nchw = p.layout == CF_NCHW;
    const int tid = threadIdx.x, group = blockIdx.y;
    const int channels = p.k / p.groups, inputs = p.c / p.groups;
    const int taps = p.r * p.s, reduction = inputs * taps, products = tiling.slab * taps;
    const int channel0 = int(blockIdx.x % tiling.channel_tiles) * Channels;
    const int tile = blockIdx.x / tiling.channel_tiles;
    const int row0 = tile / tiling.column_tiles * tiling.tile_rows;
    const int column0 = tile % tiling.column_tiles * tiling.tile_columns;
    const int top = row0 * p.stride_h - p.pad_top, left = column0 * p.stride_w - p.pad_left;

    // Threads without a pixel read at the first one's place.
    const int row = tid / tiling.tile_columns, column = tid % tiling.tile_columns;
    const bool inside = row < tiling.rows && column < tiling.columns;
    const int place = inside ? row * p.stride_h * int(tiling.by_width.d) + column * p.stride_w : 0;
    const char *const mine = reinterpret_cast<const char *>(region + place);

    for (int64_t n = out.first + int64_t(blockIdx.z) * Images; n < end;
         n += int64_t(gridDim.z) * Images) {
        Sum sums[Images][Channels];
        for (int c0 = 0; c0 < inputs; c0 += tiling.slab) {
            // Neighbouring threads read neighbouring elements: columns in NCHW, channels in NHWC.
            for (int e = tid; e < tiling.slab * tiling.area; e += Threads) {
                const int at = nchw ? int(tiling.by_area.divide(e)) : int(tiling.by_slab.divide(e));
                const int rest = nchw ? e - at * tiling.area : e - at * tiling.slab;
                const int c = nchw ? at : rest, position = nchw ? rest : at;
                const int i = tiling.by_width.divide(position);
                const int h = top + i, w = left + position - i * int(tiling.by_width.d);
                const bool there = h >= 0 && h < p.h && w >= 0 && w < p.w && c0 + c < inputs;
                const T *const from = x + xs.at(n, int64_t(group) * inputs + c0 + c, h, w);
                Quad quad;
#pragma unroll
                for (int j = 0; j < Images; ++j) {
                    const T v = there && n + j < end ? from[j * xs.image] : T(0.0f);
                    quad.v[j] = cf::operand<Sum>(v, p.math);
                }
                region[c * tiling.plane + position] = quad;
            }
            // Products in the filter's own order: c r s in NCHW, r s c in NHWC.
            for (int i = tid; i < products; i += Threads) {
                const int t = tiling.by_slab.divide(i), c = c0 + i - t * tiling.slab;
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
                    out.store<T>(p, n + j, group * channels + channel0 + k, row0 + row,
                                 column0 + column, sums[j][k].get());
    }
}

// Bytes of four operands.
int quad_bytes(const cf_problem &p) { return p.math == CF_MATH_F16_ACC ? 8 : 16; }

// What a tile of this shape reads of a channel. Doubles, as strides and dilations may be so large
// that an integer would wrap.
struct Region {
    double height, width;

    Region(const cf_problem &p, const Tiling &tiling)
        : height(double(tiling.rows - 1) * p.stride_h + double(p.r - 1) * p.dilation_h + 1),
          width(double(tiling.columns - 1) * p.stride_w + double(p.s - 1) * p.dilation_w + 1) {}
    double area() const { return height * width; }
};

// The tiles' shape alone.
Tiling shape(const cf_problem &p, int columns) {
    Tiling tiling;
    tiling.tile_columns = columns;
    tiling.tile_rows = Pixels / columns;
    tiling.rows = std::min(tiling.tile_rows, p.p);
    tiling.columns = std::min(tiling.tile_columns, p.q);
    tiling.row_tiles = int(cf::ceil_div(p.p, tiling.tile_rows));
    tiling.column_tiles = int(cf::ceil_div(p.q, tiling.tile_columns));
    tiling.channel_tiles = int(cf::ceil_div(p.k / p.groups, Channels));
    return tiling;
}

// What follows from it.
void divide(const cf_problem &p, const Region &region, Tiling &tiling) {
    const int taps = p.r * p.s, inputs = p.c / p.groups;
    tiling.area = int(region.height) * int(region.width);
    tiling.plane = tiling.area | 1; // odd, so that neighbouring channels lie in different banks
    const int fit = SlabBytes / quad_bytes(p) / (tiling.plane + taps);
    const int slab = std::min({inputs, std::max(fit, 1), std::max(TableSize / taps, 1)});
    tiling.slab = int(cf::ceil_div(inputs, cf::ceil_div(inputs, slab)));
    tiling.by_width = Divisor(uint32_t(region.width));
    tiling.by_area = Divisor(tiling.area);
    tiling.by_slab = Divisor(tiling.slab);
}

// Takes the shape of least work, or says that no region fits a block's shared memory.
bool tile(const cf_query &query, Tiling &best, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const int taps = p.r * p.s, most = query.device.shared_per_block;
    double least = INFINITY, smallest = INFINITY;
    // At 8 columns and more, the 8 lanes that load 16 bytes each at a time find different banks.
    for (const int columns : {8, 16, 32, 64, 4, 2, 1}) {
        Tiling tiling = shape(p, columns);
        const Region region(p, tiling);
        const double bytes = (region.area() + 1 + taps) * quad_bytes(p);
        smallest = std::min(smallest, bytes);
        // A thread spends some 40 times longer on a product's 16 sums than on an element's copy
        // divided by the 64 threads that share it.
        const double cost =
            double(tiling.row_tiles) * tiling.column_tiles * (region.area() + 40 * taps);
        if (bytes > most || cost >= least)
            continue;
        least = cost;
        divide(p, region, tiling);
        best = tiling;
    }
    if (smallest > most)
        return no("keeps what %d pixels of %d images read of a channel in shared memory, at least "
                  "%.0f bytes here; a block has %d",
                  Pixels, Images, smallest, most);
    return true;
}

Table offsets(const cf_problem &p, const Tiling &tiling) {
    const bool nchw = p.layout == CF_NCHW;
    const int taps = p.r * p.s, width = int(tiling.by_width.d);
    Table table = {};
    for (int i = 0; i < tiling.slab * taps; ++i) {
        const int c = nchw ? i / taps : i % tiling.slab, t = nchw ? i % taps : i / tiling.slab;
        const int place = t / p.s * p.dilation_h * width + t % p.s * p.dilation_w;
        table.bytes[i] = (c * tiling.plane + place) * quad_bytes(p);
    }
    return table;
}

struct State {
    cf_problem problem;
    cf::Sums sums;
    Tiling tiling;
    cf::Kernel<cf_problem, const void *, const void *, cf::Output, int64_t, Tiling, Table> kernel;
    Table table;
};

// Blocks for the same images of a group.
double tiles(const Tiling &tiling) {
    return double(tiling.row_tiles) * tiling.column_tiles * tiling.channel_tiles;
}

// Blocks that share them; each walks the images with a stride.
unsigned image_blocks(int64_t images) {
    return unsigned(std::min<int64_t>(cf::ceil_div(images, Images), cf::MaxGrid));
}

// Clocks of an element that a thread copies and of a product: of a multiprocessor with many warps,
// and of a block by itself, which waits for what it copies and, besides, for each slab. And of a
// multiprocessor for each output. Fitted to 407 times of an H200: 55 of random problems are 15 %
// off (root of the mean square of logarithms), the others 25 %.
double estimate(const cf_query &q, const Tiling &tiling) {
    constexpr double CopyEach = 27, ProductEach = 6.6, CopyAlone = 880, ProductAlone = 36,
                     SlabAlone = 4300, OfOutput = 1.5;
    const cf_problem &p = q.problem;
    const double blocks = tiles(tiling) * p.groups * double(cf::ceil_div(p.n, Images));
    const double slabs = double(cf::ceil_div(p.c / p.groups, tiling.slab));
    const double copied = cf::padded(double(tiling.slab) * tiling.area, Threads) / Threads;
    const double products = double(tiling.slab) * p.r * p.s;
    const double busy = std::max(std::min(blocks, double(q.device.sm_count)), 1.0);
    const double each =
        blocks / busy * slabs * (CopyEach * copied + ProductEach * products) * (Threads / 32);
    const double slab_bytes = double(tiling.slab) * (tiling.plane + p.r * p.s) * quad_bytes(p);
    const double resident =
        std::clamp(std::floor(q.device.shared_per_sm / (slab_bytes + 1024)), 1.0, double(Resident));
    const double turns = std::ceil(blocks / (q.device.sm_count * resident));
    const double alone = turns * slabs * (CopyAlone * copied + ProductAlone * products + SlabAlone);
    const double us = cf::clocks_us(q.device, cf::together_us(each, alone), cf::TensorClock) +
                      cf::busy_us(q.device, OfOutput * cf::pixels(p) * p.k, 1);
    return cf::ShortLaunchUs + cf::beside_tensors_us(q, us) +
           (p.epilogue.pool_h ? cf::finish_us(q) : 0);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    Tiling &tiling = state.tiling;
    if (p.r * p.s > TableSize)
        return no("has a table of %d offsets; this filter has %d x %d taps", TableSize, p.r, p.s);
    if (!tile(query, tiling, no))
        return false;
    if (p.groups > cf::MaxGrid || tiles(tiling) > INT32_MAX)
        return no("needs a grid of %.0f x %d blocks; the limit is %d x %d", tiles(tiling), p.groups,
                  INT32_MAX, cf::MaxGrid);
    state.table = offsets(p, tiling);
    state.sums = cf::Sums(p);
    state.sums.workspace(plan);
    plan.us = estimate(query, tiling);
    const dim3 grid(unsigned(tiles(tiling)), unsigned(p.groups),
                    image_blocks(state.sums.chunks.most));
    const size_t shared = size_t(tiling.slab) * (tiling.plane + p.r * p.s) * quad_bytes(p);
    cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        state.kernel =
            cf::kernel_of(fused_offsets_kernel<T, decltype(sum)::value>, grid, Threads, shared);
    });
    return true;
}

// A chunk of fewer images has fewer blocks along them; nothing else knows how many there are.
int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    return state.sums.launch(p, args, "fused", [&](int64_t first, int64_t count, float *sums) {
        auto kernel = state.kernel;
        kernel.grid.z = image_blocks(count);
        return kernel.launch(args.stream, p, args.x, args.w, cf::Output(args, sums, first),
                             first + count, state.tiling, state.table);
    });
}

} // namespace

extern "C" const cf_row CF_ROW(fused, offsets) = {
    "fused_offsets",
    "fused",
    "region of interest in shared memory, unrolled from there through offsets in constant memory; "
    "64 pixels x 4 channels x 4 images",
    "report C",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
