// The planner of implicit_gemm_mma: which tiles there are, and what each is estimated to take.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/room.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/mma_order.cuh"

namespace cf::implicit_mma {

constexpr int EntryBytes = 8;  // of the table of elements or pieces
constexpr int MaxTapBits = 31; // rows and columns of a filter
constexpr int MostPixels = 256, MostStages = 8;

// Places in x are bytes, in y elements.
struct Tiling {
    Order order;
    Divisor by_block, by_s; // pieces of a block of channels; columns of the filter
    int64_t image_x, row_x, column_x, channel_x;
    int64_t tap_row, tap_column; // from tap to tap
    int h, w, q, plane;          // plane: pixels of an image of y
    int stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
    LongDivisor by_plane;
    Divisor by_q;
    int64_t pixels; // of all images
    int groups, filter_tiles;
    Divisor by_groups, by_filter_tiles;
    int k;        // output channels of all groups
    int together; // neighbouring channels that are read at once, where pieces are gathered
    bool copied;  // pieces of x are as they are multiplied
    int entries;  // of the table of elements or pieces
    int run;      // neighbours that are stored together
    bool finishes;
    int activation; // beyond what cf::Finish does
};

// Where a launch leaves its outputs.
struct Target {
    void *y;
    Finish finish;
};

// What a plan knows of a compiled tile.
struct TileNumbers {
    int channels, pixels, warps, blocks, stages;
    int rows, columns; // of a warp, for what it reads of shared memory
};

// Those that copy pieces, and those that gather them; none of no pixels.
constexpr int TileCount = 6;
constexpr TileNumbers Copying[TileCount] = {
    {128, 256, 8, 1, 4, 64, 64}, {128, 128, 4, 2, 4, 64, 64}, {64, 256, 4, 2, 4, 64, 64},
    {64, 128, 4, 3, 4, 64, 32},  {64, 64, 4, 4, 6, 32, 32},   {32, 64, 4, 4, 8, 16, 32},
};
constexpr TileNumbers Gathering[TileCount] = {
    {}, {128, 128, 8, 1, 4, 64, 32}, {}, {}, {64, 64, 4, 4, 6, 32, 32}, {},
};

struct Option {
    Tiling tiling;
    int tile = -1; // none where nothing fits
    int64_t grid;
    int shared; // bytes
    double us;
};

// Whether pieces of x are multiplied as they lie in memory, and all that a tile reads is within 31
// bits of pieces.
inline bool is_copied(const cf_problem &p, const Tiling &t) {
    const bool as_stored = p.storage != CF_STORE_F32 || product_of(p) == Tf32;
    const double window = double(p.r) * double(t.tap_row) + double(p.s) * double(t.tap_column);
    const double images = 2 + MostPixels / t.plane;
    return p.layout == CF_NHWC && as_stored && t.order.c % t.order.per == 0 &&
           p.align >= PieceBytes &&
           images * double(t.image_x) + window < double(PieceBytes) * INT32_MAX;
}
// Of the table that such pieces are read by: two blocks of channels, and steps behind the last.
inline int piece_entries(const Order &order) {
    const int blocks = order.steps > order.block_steps ? 2 : 1;
    return (blocks * order.block_steps + MostStages) * StepPieces;
}

// Clocks that mma.sync takes a quarter of a multiprocessor, for 16 x 8 sums and half of a step.
inline double product_clocks(const cf_device &d) {
    return d.arch >= 90 ? 6 : d.arch == 80 ? 8 : 16;
}

// Clocks of a multiprocessor for a step of a block.
struct StepClocks {
    double warp, issued, fill; // one warp by itself; of all; what L2 takes
    // What a warp by itself waits for: its barrier, or pieces that it loads into registers.
    double waits;

    // A warp's products and the instructions between them do not overlap, nor do warps of the same
    // quarter: clocks of all add up.
    StepClocks(const cf_query &query, const Option &option, const TileNumbers &of) {
        const Tiling &t = option.tiling;
        const double products = 2.0 * (of.rows / 16) * (of.columns / 8); // of a warp
        const double operands = 2.0 * (of.rows + of.columns) / 16;
        const double threads = 32 * of.warps;
        const double pieces = of.pixels * StepPieces / threads;
        const double filter_pieces = of.channels * StepPieces / threads;
        const double of_piece = t.copied        ? 4
                                : t.order.whole ? 12 + 18.0 * t.order.per / t.together
                                                : 17.0 * t.order.per;
        const double others = 30 + operands + filter_pieces + pieces * of_piece;
        warp = products * product_clocks(query.device) + others;
        issued = of.warps / 4.0 * warp;
        fill = (of.channels + of.pixels) * StepBytes / 36;
        waits = t.copied || !t.order.whole ? 65 : 600;
    }
    // Of so many beside each other.
    double of_blocks(double blocks) const {
        return together_us(blocks * std::max(issued, fill), warp + waits);
    }
};

// What comes before a block's first step and behind its last: others' steps hide it.
inline double clocks_around(const cf_problem &p, const Option &option, const TileNumbers &of) {
    const double run = run_of(element_bytes(p));
    const double apart = (12 / double(option.tiling.run) + 4) / (12 / run + 4);
    return 1570 + double(of.channels) * of.pixels * element_bytes(p) / 16 * apart;
}

// Its constants are fitted to layers of VGG-16 and ResNet-50 on an H200, in f16 with every tile;
// those of pieces that are gathered to NCHW, with one image as well.
inline double estimate(const cf_query &query, const Option &option, const TileNumbers &of) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const int of_sm = std::clamp(d.shared_per_sm / (option.shared + SystemShared), 1, of.blocks);
    const StepClocks step(query, option, of);
    const double steps = option.tiling.order.steps, around = clocks_around(p, option, of);
    const auto wave = [&](double blocks) {
        return blocks > 0 ? steps * step.of_blocks(blocks) + around * (0.5 + 0.5 * blocks) : 0;
    };
    const double all = double(d.sm_count) * of_sm, tiles = double(option.grid);
    const double whole = std::floor(tiles / all);
    const double clocks = whole * wave(of_sm) + wave(std::ceil((tiles - whole * all) / d.sm_count));
    const double size = element_bytes(p);
    const double x = double(p.n) * p.c * p.h * p.w, y = pixels(p) * p.k;
    const double bytes = (x + y * (p.epilogue.residual ? 2 : 1) + reduction(p) * p.k) * size;
    return ShortLaunchUs + together_us(clocks_us(d, clocks, TensorClock), memory_us(d, bytes));
}

// What does not depend on the tile. Where all of a window lies within 31 bits, pieces may have
// several taps.
inline Tiling tiling_of(const cf_problem &p) {
    Tiling t = {};
    const int64_t element = element_bytes(p);
    const Strides x = input_strides(p);
    t.image_x = x.image * element, t.row_x = x.row * element;
    t.column_x = x.column * element, t.channel_x = x.channel * element;
    t.tap_row = t.row_x * p.dilation_h, t.tap_column = t.column_x * p.dilation_w;
    const double window = double(p.r) * double(t.tap_row) + double(p.s) * double(t.tap_column) +
                          double(p.c / p.groups) * double(t.channel_x);
    t.order = Order(p, window < INT32_MAX);
    t.by_block = Divisor(t.order.block_pieces), t.by_s = Divisor(p.s);
    t.h = p.h, t.w = p.w, t.q = p.q, t.plane = p.p * p.q;
    t.stride_h = p.stride_h, t.stride_w = p.stride_w;
    t.dilation_h = p.dilation_h, t.dilation_w = p.dilation_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.by_plane = LongDivisor(t.plane), t.by_q = Divisor(p.q);
    t.pixels = p.n * t.plane;
    t.groups = p.groups, t.by_groups = Divisor(p.groups);
    t.k = p.k;
    const int together = element == 4 ? 4 : 2;
    const bool neighbours = p.layout == CF_NHWC && t.order.whole && t.order.c % together == 0 &&
                            p.align >= together * element;
    t.together = neighbours ? together : 1;
    t.copied = is_copied(p, t);
    t.entries = t.copied        ? piece_entries(t.order)
                : t.order.whole ? 0
                                : t.order.steps * StepPieces * t.order.per;
    const int line = p.layout == CF_NHWC ? t.order.k : t.plane;
    const int run = run_of(element_bytes(p));
    t.run = p.align < PieceBytes                   ? 1
            : line % run == 0                      ? run
            : line % 4 == 0 && p.layout == CF_NCHW ? 4
                                                   : 1;
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    return t;
}

inline bool with_tile(const cf_query &query, int number, const Tiling &common, Option &option) {
    const TileNumbers &of = common.copied ? Copying[number] : Gathering[number];
    option = {};
    option.tiling = common;
    option.tile = number;
    if (!of.pixels)
        return false;
    Tiling &t = option.tiling;
    t.filter_tiles = int(ceil_div(t.order.k, of.channels));
    t.by_filter_tiles = Divisor(t.filter_tiles);
    const double shared =
        double(of.channels + of.pixels) * StepBytes * of.stages + double(t.entries) * EntryBytes;
    const double grid = std::ceil(double(t.pixels) / of.pixels) * t.groups * double(t.filter_tiles);
    if (shared > query.device.shared_per_block || grid > INT32_MAX)
        return false;
    option.shared = int(shared), option.grid = int64_t(grid);
    option.us = estimate(query, option, of);
    return true;
}

// The one that is estimated to take least, of all or of one number; none if nothing fits.
inline Option best_option(const cf_query &query, int only) {
    const Tiling common = tiling_of(query.problem);
    Option best;
    for (int number = 0; number < TileCount; ++number) {
        Option option;
        if ((only < 0 || number == only) && with_tile(query, number, common, option) &&
            (best.tile < 0 || option.us < best.us))
            best = option;
    }
    return best;
}

} // namespace cf::implicit_mma
