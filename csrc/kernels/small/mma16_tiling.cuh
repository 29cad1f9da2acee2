// How small_mma16 tiles a problem: how positions, filter elements and output channels come to the
// 16 x 8 x 16 product of one mma.sync, and what streams through shared memory.
//
// A position is what one row of the product stands for: one output pixel, or two beside each other
// where there is a single input channel. A column of the product is an output channel of it, or one
// of the two pixels in one. The sum runs along the elements of a row of the filter, which lie one
// behind the other in shared memory: [column][channel], channels padded by zeros.
//
// A strip is some rows of an image's outputs with the inputs that they need, or all of them; a row
// tile is the rows of a task. A task is 16 positions in the row tiles of a strip, by one group of
// output channels.
#pragma once

#include "core/divisor.cuh"
#include "kernels/small/few_channels.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

namespace cf::small16 {

constexpr int Warps = 16, Consumers = 12; // the others load and store
constexpr int Schedulers = 4;             // of a multiprocessor
constexpr int Positions = 16;             // of a task, in one row of y
constexpr int MaxStages = 4;              // strips of x in shared memory
constexpr int MaxOutStages = 4;           // of which the outputs gather
constexpr int PlanarBuffers = 2;          // for images as they are in x
constexpr int MaxTiles = 4;               // of 8 columns in a group
constexpr int MaxFilter = 11;             // rows, columns
constexpr int FragmentBytes = 256;
constexpr int StaticShared = 1024; // at most; barriers
constexpr int BulkBytes = 1 << 20; // of an image that one bulk copy loads: less
constexpr int MaxTasks = 1 << 30;  // of a batch

// Rows of y of a task: as many as 128 registers per thread hold the sums of.
__host__ __device__ constexpr int rows_of(int column_tiles) {
    return column_tiles == 1 ? 8 : column_tiles == 2 ? 7 : column_tiles == 3 ? 5 : 4;
}

// Fragments of weights of a step: in twos, which a lane reads together.
__host__ __device__ constexpr int fragments_of(int filter_rows, int column_tiles) {
    return (filter_rows * column_tiles + 1) / 2 * 2;
}

// Tiles of the widest group that is compiled; more spill registers, and two groups of two do as
// well. Stride 0 stands for the kernel that takes any.
constexpr int most_tiles(bool single, int stride) {
    return stride == 2 ? 2 : stride == 1 && single ? 3 : MaxTiles;
}

// What a lane of a producer warp copies in one piece, or what one bulk copy loads.
enum Copy {
    Word,    // two elements on their own, for one word of shared memory
    Line,    // two neighbours that are neighbours in shared memory too
    Whole,   // four of them, of an image that lies in shared memory as it does in x
    Column,  // one column of four channels (NCHW)
    Columns, // two columns of four channels
    Threes,  // four columns of three channels (NHWC)
    Direct,  // bulk: rows of x as they are to lie in shared memory
    Planes,  // bulk: an image of NCHW, whose channels lanes then put beside each other
};

// A problem as the kernel wants it, and how it is tiled. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, k, p, q, r, stride_h, stride_w, pad_top, pad_left;
    bool nchw, from_floats, to_floats; // x in f32, y in f32
    int pixel_elements;                // from column to column in shared memory: 1, or c padded
    int pixels_per_position;           // 1, or 2 with a single channel
    int positions;                     // of a row of y
    int steps;        // along a row of the filter: 16 elements, 8 with a single channel
    int filter_rows;  // products of a step: R, or pairs of rows with a single channel
    int parities;     // of rows of y that have weights of their own
    int unrolled;     // R where the kernel is compiled for it, else 0
    int column_tiles; // columns of a group over 8
    int groups;
    // channel = group * per_group + tile * per_tile + column / 2 * per_pair
    //         + column % 2 * per_column
    int per_group, per_tile, per_pair, per_column;
    int row_tiles; // of a strip
    int strips_per_image;
    int strips;                          // of the images of a launch
    int tasks_per_group;                 // of a strip
    int tasks;                           // of a strip
    int input_rows;                      // of x in a strip
    int producers;                       // warps
    int stages;                          // of the input ring: strips
    uint32_t pitch, stage_bytes;         // from row to row, from stage to stage
    uint32_t tile_bytes, position_bytes; // from row tile to row tile, from position to position
    uint32_t planar_bytes;               // of a buffer for an image as it is in x
    uint32_t zero_bytes;                 // behind rows that a bulk copy loads
    uint32_t weight_bytes;               // in shared memory; 0: they stay in global memory
    Copy copy;
    int channel_parts;           // of a column: pairs of channels, or fours in NCHW
    int copies_per_line, copies; // of a row (NCHW: in one part), of a strip
    // From one to the next in y, worked out here: a task would begin its stores with these
    // products.
    int pixel_bytes, row_bytes;
    int64_t area_bytes;
    bool staged;    // outputs gather in shared memory and leave by bulk copies
    int out_stages; // of the output ring
    uint32_t out_stage_bytes;
    // Segments of an output stage that are contiguous in y: all of it, or each channel (strips of
    // NCHW).
    int segments;
    uint32_t segment_bytes;
    int per_store;            // pixels in NCHW, or all channels of a lane in NHWC, in one store
    bool whole_sectors;       // and those make whole sectors of 32 bytes
    double clocks;            // estimated, of a launch
    bool preloaded;           // all warps load all strips of a block, and compute then: no ring
    int blocks_per_strip;     // more than one where blocks share the tasks of a strip
    int strips_per_out_stage; // one, or all of an image
    Divisor by_groups, by_positions, by_image, by_line, by_parts, by_blocks, by_out_stage;
};

inline bool compiled(const cf_problem &p) {
    return (p.r == 3 || p.r == 5 || p.r == 7) && (p.stride_h == 1 || (p.stride_h == 2 && p.c > 1));
}

// Calls body with a value of the operands' type.
template <class Body>
inline auto for_element(const cf_problem &p, Body body) {
    return p.math == CF_MATH_BF16 ? body(__nv_bfloat16()) : body(__half());
}

// What does not depend on how the batch is tiled: all that the packed filter depends on, and how y
// is stored. `unrolled` asks for the kernel that keeps its weights in shared memory.
inline Tiling shape_of(const cf_problem &p, bool unrolled) {
    Tiling t = {};
    t.c = p.c, t.h = p.h, t.w = p.w, t.k = p.k, t.p = p.p, t.q = p.q, t.r = p.r;
    t.stride_h = p.stride_h, t.stride_w = p.stride_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.nchw = p.layout == CF_NCHW;
    t.from_floats = p.storage == CF_STORE_F32;
    t.to_floats = t.from_floats || sums_follow(p);
    t.unrolled = unrolled ? p.r : 0;
    const bool single = p.c == 1;
    t.pixel_elements = single ? 1 : int(round_up(p.c, 2));
    if (t.pixel_elements % 16 == 0)
        t.pixel_elements += 4; // lanes would read from two banks only
    t.pixels_per_position = single ? 2 : 1;
    t.positions = int(ceil_div(p.q, t.pixels_per_position));
    t.steps =
        int(single ? ceil_div(int64_t(p.s) + p.stride_w, 8) : ceil_div(p.s * t.pixel_elements, 16));
    t.filter_rows = int(single ? ceil_div(p.r, 2) : p.r);
    t.parities = single && unrolled ? 2 : 1;
    // The fewest columns, then the fewest groups.
    const int columns = int(ceil_div(p.k * t.pixels_per_position, 8));
    const int most = most_tiles(single, unrolled ? p.stride_h : 0);
    const int least = unrolled && p.stride_h == 1 ? 1 : most;
    t.column_tiles = most;
    for (int tiles = most - 1; tiles >= least; --tiles)
        if (round_up(columns, tiles) < round_up(columns, t.column_tiles))
            t.column_tiles = tiles;
    t.groups = int(ceil_div(columns, t.column_tiles));
    t.per_group = t.column_tiles * 8 / t.pixels_per_position;
    if (t.nchw) // lanes that store neighbouring pixels hold one channel
        t.per_tile = single ? 4 : 8, t.per_pair = single ? 1 : 2;
    else // a lane's channels are neighbours
        t.per_tile = single ? 1 : 2, t.per_pair = t.per_tile * t.column_tiles;
    t.per_column = single ? 0 : 1;

    const int align = sums_follow(p) ? 16 : p.align; // of what is written
    const int64_t out_bytes = t.to_floats ? 4 : 2;
    t.pixel_bytes = int(out_bytes) * (t.nchw ? 1 : p.k);
    // Wider rows than 32 bits count do not fit shared memory, and are refused for that.
    t.row_bytes = int(std::min<int64_t>(int64_t(p.q) * t.pixel_bytes, INT32_MAX));
    t.area_bytes = int64_t(p.p) * p.q * out_bytes;
    if (t.nchw) {
        const int width = 2 * t.pixels_per_position;
        t.per_store = p.q % width == 0 && align >= width * out_bytes ? width
                      : p.q % 2 == 0 && align >= 2 * out_bytes       ? 2
                                                                     : 1;
        t.whole_sectors = t.per_store == width && p.q * out_bytes % 32 == 0;
    } else {
        const int channels = t.per_group / 4; // of a lane
        t.whole_sectors =
            p.c > 1 && p.k % channels == 0 && p.k * out_bytes % 16 == 0 && align >= 16;
        t.per_store = t.whole_sectors ? channels : 1;
    }
    return t;
}

inline uint64_t packed_bytes(const Tiling &t) {
    return uint64_t(t.groups) * t.steps * t.parities * fragments_of(t.filter_rows, t.column_tiles) *
           FragmentBytes;
}

// Of a block, beside its barriers.
inline size_t shared_bytes(const Tiling &t) {
    return t.weight_bytes + size_t(t.out_stages) * t.out_stage_bytes +
           size_t(t.stages) * t.stage_bytes + size_t(PlanarBuffers) * t.planar_bytes;
}

// Bytes from row to row in shared memory.
inline int64_t pitch_of(const cf_problem &p, const Tiling &t) {
    const int64_t columns =
        std::max(int64_t(p.pad_left) + p.w,
                 (int64_t(t.positions) * t.pixels_per_position - 1) * p.stride_w + p.s);
    return ceil_div(columns * t.pixel_elements, 2) * 4;
}

// What the last positions read beyond their rows, and pairs of rows beyond the last one: finite
// numbers, which meet weights of zero.
inline int64_t row_beyond(const Tiling &t, int64_t pitch) { return t.parities == 2 ? pitch : 0; }
inline int64_t beyond(const Tiling &t, int64_t pitch) {
    return int64_t(t.pixels_per_position) * t.stride_w * t.pixel_elements * 2 +
           int64_t(t.steps) * 32 + row_beyond(t, pitch);
}

// A filter is packed for the kernel that keeps its weights in shared memory, if they leave room for
// a strip, and for the one that does not, if they do not leave room for two, as many images ask
// for. So what is packed does not depend on the number of images; which of both a launch takes
// does. The shape of one that is not packed has no groups.
struct Shapes {
    Tiling unrolled, plain;
};

inline Shapes shapes_of(const cf_query &query) {
    const cf_problem &p = query.problem;
    Shapes shapes = {};
    int64_t strips = 0; // of one row tile, beside the weights
    if (compiled(p)) {
        const Tiling t = shape_of(p, true);
        const int64_t rows = (rows_of(t.column_tiles) - 1) * p.stride_h + p.r;
        const int64_t pitch = pitch_of(p, t), shared = query.device.shared_per_block;
        const int64_t budget = shared - StaticShared - int64_t(packed_bytes(t));
        if (pitch <= shared)
            strips = std::max<int64_t>(budget, 0) / round_up(rows * pitch + beyond(t, pitch), 16);
        if (strips > 0)
            shapes.unrolled = t;
    }
    if (strips < 2)
        shapes.plain = shape_of(p, false);
    return shapes;
}

inline uint64_t packed_bytes(const Shapes &shapes) {
    return packed_bytes(shapes.unrolled) + packed_bytes(shapes.plain);
}

// How a filter is arranged, for cf_plan::filter_layout: all that pack_kernel looks at.
inline uint64_t filter_layout(const cf_problem &p, const Shapes &shapes) {
    // Weights of a position's second pixel lie a stride further.
    uint64_t id = uint32_t(p.c == 1 ? p.stride_w : 0);
    const auto digit = [&](int value, int base) { id = id * base + value; };
    digit(p.c, MostInputs + 1), digit(p.k, MostGroupedOutputs + 1), digit(p.r, MaxFilter + 1),
        digit(p.s, MaxFilter + 1);
    digit(p.storage, 3), digit(p.math == CF_MATH_BF16, 2), digit(p.layout, 2);
    digit(shapes.unrolled.column_tiles, MaxTiles + 1), digit(shapes.plain.groups > 0, 2);
    return id;
}

} // namespace cf::small16
