// How small_mma tiles a batch for persistent blocks: which shape of a task suits a problem, how its
// sum is put in order, which strips of images a block streams through shared memory, and how many
// of them are there together.
//
// A strip is an image or some of its rows. A row tile is all columns of as many rows of a strip as
// a task computes, of all rows where weights are stationary. A column is an output pixel of a row
// tile, or some adjacent ones, with all rows of the tile below. A task is 8, 16 or 64 columns,
// wherever they lie in the block's row of strips, in one group of output channels. An output tile
// is what one row tile gives in one group.
#pragma once

#include "core/divisor.cuh"
#include "kernels/small/few_channels.cuh"

#include <algorithm>
#include <cmath>

namespace cf::small_mma {

constexpr int MaxStages = 32;       // as many strips as a task may touch
constexpr int MaxOutputStages = 32; // output tiles
constexpr int MaxFilter = 11;       // rows and columns
constexpr int MinProducts = 20;     // of a sum in math fp32
constexpr int Ahead = 4;           // steps of inputs in registers together where no rows share them
constexpr int StaticShared = 2048; // bytes that barriers may take
// Columns and output tiles of a launch, and elements and rows of an image, are counted in 31 bits.
constexpr double MaxCount = 1 << 30;

// What is computed in one task.
struct TaskShape {
    bool wgmma;            // by four warps; else by one with mma.sync
    bool pixel_rows;       // the tensor core's tile has 16 pixels x 8 channels, else 8 pixels x 16
    int channel_tiles;     // of output channels
    int rows;              // of outputs
    int row_reuse;         // filter rows that share an input; 1: every step loads its own
    int stride;            // of rows, where row_reuse > 1
    int warpgroups;        // of consumers; one more loads and stores
    int rows_per_step = 0; // rows of inputs at a time, where a row of the filter is one step
    // There: a task is all rows of a strip, worked out `rows` at a time, and weights stay in
    // registers.
    bool weight_stationary = false;

    __host__ __device__ constexpr int pixels() const { return pixel_rows ? 2 : 1; }  // of a lane
    __host__ __device__ constexpr int weights() const { return pixel_rows ? 2 : 4; } // of a lane
    __host__ __device__ constexpr int columns() const { return wgmma ? 64 : 8 * pixels(); }
    __host__ __device__ constexpr int tile_channels() const { return pixel_rows ? 8 : 16; }
    __host__ __device__ constexpr int window() const { // rows of inputs
        return (rows - 1) * stride + row_reuse;
    }
    __host__ __device__ constexpr int tasks() const { // at a time
        return wgmma ? warpgroups : warpgroups * 4;
    }
    __host__ __device__ constexpr int threads() const { return (warpgroups + 1) * 128; }
    // Of a consumer's thread, and of one that loads or stores.
    __host__ __device__ constexpr int consumer_registers() const {
        return warpgroups == 2 ? 224 : 152;
    }
    __host__ __device__ constexpr int producer_registers() const { return 56; }
};

constexpr TaskShape TaskShapes[] = {
    {false, true, 1, 8, 1, 1, 3},   {false, false, 1, 8, 1, 1, 3},
    {false, true, 1, 10, 7, 1, 3},  {true, true, 3, 2, 1, 1, 3},
    {true, true, 4, 2, 1, 1, 3},    {true, true, 8, 2, 1, 1, 3},
    {true, true, 3, 6, 5, 1, 2, 3}, {true, true, 3, 6, 5, 1, 2},
    {true, true, 3, 3, 5, 1, 3},    {true, true, 4, 2, 7, 1, 3},
    {true, true, 8, 2, 7, 2, 2},    {false, true, 1, 2, 7, 1, 3, 0, true},
};
constexpr int TaskShapeCount = sizeof(TaskShapes) / sizeof(TaskShapes[0]);

// The order of a sum. A row of the filter has `elements` products: each pair of channel and column,
// in the order in which the inputs lie in memory. A step of the tensor core takes two halves of
// four. With row_reuse > 1 a row has `full` steps; the half that may be left of them forms steps
// with that of the next row. Otherwise rows follow each other without a gap. What fills up the last
// half has zeros for weights and repeats an input.
//
// Two, four or eight adjacent pixels may share a column (a Toeplitz matrix): the window is then
// wider by all but one of them, and the weights of each begin a column later than its left one's.
struct Order {
    int nhwc, c, r, s;
    int pixels_per_column;
    int window; // columns of inputs
    int elements;
    int full, odd; // row_reuse > 1
    int steps;     // in all

    struct Tap {
        bool live;
        int c, r, s; // s in the window
    };
    // Element e of filter row r.
    __host__ __device__ Tap element(int e, int r) const {
        const bool live = e < elements;
        e = live ? e : elements - 1;
        return nhwc ? Tap{live, e % c, r, e / c} : Tap{live, e / window, r, e % window};
    }
    // Product t of a half of a step.
    __host__ __device__ Tap tap(int row_reuse, int step, int half, int t) const {
        if (row_reuse == 1) {
            const int f = 8 * step + 4 * half + t, all = elements * r;
            const int e = f < all ? f : all - 1;
            Tap tap = element(e % elements, e / elements);
            tap.live = f < all;
            return tap;
        }
        if (step < full * row_reuse)
            return element(step / row_reuse * 8 + 4 * half + t, step % row_reuse);
        const int row = 2 * (step - full * row_reuse) + half;
        Tap tap = element(full * 8 + t, row);
        tap.live = tap.live && row < r;
        return tap;
    }
};

inline Order order_of(const cf_problem &p, const TaskShape &shape, int pixels_per_column) {
    Order o = {p.layout == CF_NHWC, p.c, p.r, p.s, pixels_per_column};
    o.window = p.s + pixels_per_column - 1;
    o.elements = p.c * o.window;
    if (shape.row_reuse == 1) {
        o.steps = int(ceil_div(o.elements * p.r, 8));
    } else {
        const int halves = int(ceil_div(o.elements, 4));
        o.full = halves / 2, o.odd = halves % 2;
        o.steps = o.full * shape.row_reuse + o.odd * int(ceil_div(shape.row_reuse, 2));
    }
    return o;
}

// The weight that lies at float i of the packed filter, for groups of so many output channels:
// [group][step][tile][part][lane][weights of a lane], or [group][step][part][half][column][4] for
// wgmma. Part 1 is lo.
struct Weight {
    bool live, lo;
    int k, c, r, s;
};
__host__ __device__ inline Weight weight_at(const Order &order, const TaskShape &shape, bool three,
                                            int channels, int64_t i) {
    const auto digit = [&](int base) {
        const int d = int(i % base);
        i /= base;
        return d;
    };
    const int parts = three ? 2 : 1;
    int part, tile, g, t, reg; // lane 4 g + t; reg counts halves and, of 16 channels, those 8 on
    if (shape.wgmma) {
        t = digit(4), g = digit(8), tile = digit(shape.channel_tiles), reg = digit(2);
        part = digit(parts);
    } else {
        reg = digit(shape.weights()), t = digit(4), g = digit(8);
        part = digit(parts), tile = digit(shape.channel_tiles);
    }
    const int step = digit(order.steps), group = int(i);
    const Order::Tap tap = order.tap(shape.row_reuse, step, shape.pixel_rows ? reg : reg / 2, t);
    const int column =
        !shape.pixel_rows ? tile * 16 + g + reg % 2 * 8 : (tile * 8 + g) / order.pixels_per_column;
    const int s = tap.s - g % order.pixels_per_column;
    return {
        tap.live && s >= 0 && s < order.s, part == 1, group * channels + column, tap.c, tap.r, s};
}

// Products of an output that do not meet padding, on average.
inline double mean_products(const cf_problem &p) {
    const auto taps = [](int taps, int outputs, int stride, int pad, int side) {
        int64_t sum = 0;
        for (int tap = 0; tap < taps; ++tap) {
            const int64_t begin = ceil_div(std::max(pad - tap, 0), stride);
            const int64_t end = ceil_div(std::max(side + pad - tap, 0), stride);
            sum += std::max<int64_t>(std::min<int64_t>(end, outputs) - begin, 0);
        }
        return double(sum) / outputs;
    };
    return p.c * taps(p.r, p.p, p.stride_h, p.pad_top, p.h) *
           taps(p.s, p.q, p.stride_w, p.pad_left, p.w);
}

// What the packed filter depends on: not on the number of images.
struct Choice {
    int number; // of a TaskShape
    Order order;
    int channels; // of a group
    int groups;
    int64_t floats; // of the packed filter
    bool three;     // products of each in tf32: filter and inputs in two parts, hi and lo

    const TaskShape &shape() const { return TaskShapes[number]; }
    int parts() const { return three ? 2 : 1; }
    // All that weight_at depends on but the filter itself.
    uint64_t filter_layout() const {
        return uint64_t(number) << 8 | uint64_t(order.pixels_per_column) << 1 | three;
    }
};

inline Choice choice_of(const cf_problem &p, int number, int pixels_per_column) {
    const TaskShape &shape = TaskShapes[number];
    Choice choice = {number, order_of(p, shape, pixels_per_column)};
    choice.channels = shape.channel_tiles * shape.tile_channels() / pixels_per_column;
    choice.groups = int(ceil_div(p.k, choice.channels));
    choice.three = p.math == CF_MATH_FP32;
    choice.floats = int64_t(choice.groups) * choice.order.steps * shape.channel_tiles *
                    choice.parts() * 32 * shape.weights();
    return choice;
}

// Numbers of the table of places of inputs.
inline int places(const Choice &choice) {
    const Order &o = choice.order;
    return choice.shape().row_reuse == 1 ? 8 * o.steps : 4 * (2 * o.full + o.odd);
}

// What a plan chooses from, beside the task.
struct Option {
    int row_tiles;          // of a strip, each of the task shape's rows
    bool output_ring;       // output tiles gather in shared memory before they are stored
    bool weights_in_shared; // else they come from the L2 cache
};

// A problem as the kernel wants it, and how it is tiled. Offsets in shared memory are bytes.
struct Tiling {
    Order order;
    int h, k, p, q, stride_h, pad_top;
    int channels, groups;
    int row_columns; // columns of a row tile
    int tile_rows;   // rows of outputs of a row tile
    int row_tiles;   // of a strip
    int image_strips;
    int strips;             // of the launch's images
    int strip_columns;      // row_tiles x row_columns
    int rows;               // input rows of a strip
    int stages;             // of the ring that strips go through
    int producers;          // warps that load; the others of four store
    uint32_t pixel;         // from input pixel to input pixel in a stage
    uint32_t pitch;         // from row to row
    uint32_t plane;         // from channel to channel in NCHW
    uint32_t stage_bytes;   // from stage to stage
    uint32_t column_step;   // from column to column
    int begin;              // of the first column's window in a stage
    int planes, row_floats; // an image in memory: planes of h rows of so many floats
    // Bulk copies of a strip, each so many bytes, but not beyond the end of its plane.
    int bulk_copies;
    int64_t bulk_bytes, bulk_end;
    // Without them: bytes that one lane copies at once, how many such pieces a row has, and the
    // zeros around it.
    int piece, row_pieces;
    int left, zeros_left, zeros_right;
    // Of the ring of output tiles; none where warps store their sums themselves.
    int output_stages;
    uint32_t output_stage_bytes, output_plane;
    uint32_t weight_bytes; // of the filter in shared memory, or 0
    int vector_stores;     // two values of a lane lie next to each other in y
    Divisor by_row_columns, by_row_tiles, by_groups, by_image_strips, by_stages, by_output_stages;
};

// Rows of y that are no whole sectors, so that two warps write to one.
inline bool partial_sectors(const cf_problem &p) {
    return p.layout == CF_NCHW ? p.q % 8 || int64_t(p.p) * p.q % 8 : p.k % 8 != 0;
}

// Fills in how a strip is copied and lies in shared memory; answers its bytes, or 0 where one row
// is more than shared memory. Row tiles may read below the image, and the last strip may have fewer
// rows: sums of what lies there are not stored.
inline int64_t lay_out_strip(const cf_problem &p, const cf_device &device, const Choice &choice,
                             const Option &option, Tiling &t) {
    const int64_t area = int64_t(p.h) * t.row_floats, image = t.planes * area;
    // From strip to strip.
    const int64_t step =
        int64_t(option.row_tiles) * choice.shape().rows * p.stride_h * t.row_floats;
    const bool unpadded = !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    const bool bulk = unpadded && p.align >= 16;
    const bool whole_image = bulk && t.image_strips == 1 && image % 4 == 0;
    const bool whole_planes = bulk && area % 4 == 0 && step % 4 == 0;
    int64_t pitch = int64_t(t.row_floats) * 4, left = 0;
    const int64_t zeros_left = int64_t(p.pad_left) * t.pixel;
    const int64_t zeros_right = int64_t(p.pad_right) * t.pixel;
    if (!whole_image && !whole_planes) {
        t.piece = p.align >= 16 && t.row_floats % 4 == 0 ? 16 : 4;
        t.row_pieces = int(pitch / t.piece);
        left = round_up(zeros_left, t.piece);
        pitch = round_up(left + pitch + zeros_right, t.piece);
    }
    if (pitch > device.shared_per_block)
        return 0;
    int64_t plane = t.rows * pitch, bytes = t.planes * plane;
    if (whole_image) {
        t.bulk_copies = 1;
        t.bulk_bytes = t.bulk_end = image * 4;
        plane = area * 4;
        bytes = (t.planes - 1) * plane + std::max<int64_t>(t.rows, p.h) * pitch;
    } else if (whole_planes) {
        t.bulk_copies = t.planes;
        t.bulk_bytes = plane = round_up(plane, 16);
        t.bulk_end = area * 4;
        bytes = t.planes * plane;
    }
    t.left = int(left), t.zeros_left = int(zeros_left / 4), t.zeros_right = int(zeros_right / 4);
    t.begin = int(left - zeros_left);
    t.pitch = uint32_t(pitch), t.plane = uint32_t(plane);
    t.producers = t.bulk_copies ? 1 : option.output_ring ? 2 : 4;
    return round_up(bytes, 128);
}

// Fills in the ring of output tiles; answers its bytes, or -1 where there can be none.
inline int64_t lay_out_outputs(const cf_problem &p, const Choice &choice, Tiling &t) {
    const TaskShape &shape = choice.shape();
    if (p.layout == CF_NHWC || shape.weight_stationary)
        return -1;
    // A plane begins as far behind a sector of 32 bytes as its place in y does. Channels that a
    // warp writes together lie in other banks.
    const int64_t words = round_up(int64_t(shape.rows) * p.q + 7, 4);
    const int64_t plane = (words + ((4 * choice.order.pixels_per_column - words) & 31)) * 4;
    // A task writes output tiles of all row tiles that it touches, while tasks before it may not
    // have written theirs: with fewer stages each could wait for the other. One more, because a
    // stage is handed back when the next output tile is being stored. And as many as lie between a
    // warp's output tiles and those of the tasks before them that may still run: a barrier's bit
    // would mislead a warp that is two rounds of the ring ahead of what is stored.
    const int64_t touched = (ceil_div(shape.columns() - 1, t.row_columns) + 1) * t.groups;
    const int64_t blocks = ceil_div(shape.tasks(), t.groups) + 1;
    const int64_t apart = (ceil_div(blocks * shape.columns(), t.row_columns) + 1) * t.groups;
    const int64_t stages = std::max(touched + 1, apart);
    if (stages > MaxOutputStages)
        return -1;
    t.output_stages = int(stages);
    t.output_plane = uint32_t(plane);
    t.output_stage_bytes = uint32_t(choice.channels * plane);
    return stages * choice.channels * plane;
}

// The tiling of a choice and an option for so many blocks, without its divisors; false where it
// does not fit.
inline bool tile(const cf_problem &p, const cf_device &device, const Choice &choice,
                 const Option &option, int blocks, Tiling &t) {
    const TaskShape &shape = choice.shape();
    const bool nhwc = p.layout == CF_NHWC;
    const int pixels_per_column = choice.order.pixels_per_column;
    const int64_t image_strips = ceil_div(ceil_div(p.p, shape.rows), option.row_tiles);
    const int64_t rows = (int64_t(option.row_tiles) * shape.rows - 1) * p.stride_h + p.r;
    t = {};
    t.order = choice.order;
    t.h = p.h, t.k = p.k, t.p = p.p, t.q = p.q;
    t.stride_h = p.stride_h, t.pad_top = p.pad_top;
    t.channels = choice.channels, t.groups = choice.groups;
    t.row_columns = p.q / pixels_per_column;
    t.row_tiles = shape.weight_stationary ? 1 : option.row_tiles;
    t.tile_rows = shape.weight_stationary ? option.row_tiles * shape.rows : shape.rows;
    t.image_strips = int(image_strips);
    if (double(p.n) * image_strips * option.row_tiles * p.q * t.groups > MaxCount ||
        rows > device.shared_per_block)
        return false;
    t.strips = int(p.n * image_strips);
    t.strip_columns = t.row_tiles * t.row_columns;
    t.rows = int(rows);
    t.planes = nhwc ? 1 : p.c;
    t.row_floats = nhwc ? p.w * p.c : p.w;
    t.pixel = nhwc ? 4 * p.c : 4;
    t.column_step = t.pixel * p.stride_w * pixels_per_column;
    t.vector_stores =
        p.align >= 8 && (nhwc ? shape.pixel_rows && pixels_per_column == 1 && p.k % 2 == 0
                              : p.q % 2 == 0 && (!shape.pixel_rows || pixels_per_column > 1));

    const int64_t strip = lay_out_strip(p, device, choice, option, t);
    const int64_t outputs = option.output_ring ? lay_out_outputs(p, choice, t) : 0;
    if (strip == 0 || outputs < 0)
        return false;
    t.weight_bytes = option.weights_in_shared ? uint32_t(choice.floats * 4) : 0;
    const int64_t budget = device.shared_per_block - StaticShared - 4 * places(choice) -
                           int64_t(t.weight_bytes) - outputs;
    const int64_t fit = budget / strip;
    // All strips that a task may touch have to be there together, and one more to be on its way.
    const int64_t touched = ceil_div(shape.columns() - 1, t.strip_columns) + 1;
    if (budget < 0 || fit < std::max<int64_t>(touched, 2) || touched > MaxStages)
        return false;
    t.stage_bytes = uint32_t(strip);
    t.stages = int(std::min({fit, int64_t(MaxStages), ceil_div(t.strips, blocks)}));
    return true;
}

inline void set_divisors(Tiling &t) {
    t.by_row_columns = Divisor(t.row_columns);
    t.by_row_tiles = Divisor(t.row_tiles);
    t.by_groups = Divisor(t.groups);
    t.by_image_strips = Divisor(t.image_strips);
    t.by_stages = Divisor(t.stages);
    t.by_output_stages = Divisor(std::max(t.output_stages, 1));
}

} // namespace cf::small_mma
