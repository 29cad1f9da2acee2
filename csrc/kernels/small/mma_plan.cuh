// How small_mma cuts a batch for persistent blocks: which form of a task suits a problem, how its
// sum is put in order, which strips of images a block streams through shared memory, and how many
// of them are there at once.
//
// A unit is an image or a strip of its rows; a line is a row tile of a unit, in the tall form all
// of it; a column is an output pixel of a line, or some neighbouring ones, with all rows of the
// tile below it. A task is 8, 16 or 64 columns, wherever they lie in the block's row of units, in
// one group of output channels. An item is what one line gives in one group.
#pragma once

#include "core/divisor.cuh"
#include "core/launch.cuh"

#include <algorithm>
#include <cmath>

namespace cf::small_mma {

constexpr int MaxSlots = 32;    // as many units as a task may touch
constexpr int MaxStages = 32;   // items
constexpr int MaxFilter = 11;   // rows and columns
constexpr int MinProducts = 16; // of a sum in math fp32
constexpr int Ahead = 4;        // steps of inputs in registers at once where no rows share them

// What is computed in one task.
struct Form {
    bool group;        // by four warps with wgmma; else by one with mma.sync
    bool pixel_rows;   // the tensor core's tile has 16 pixels x 8 channels, else 8 pixels x 16
    int tiles;         // of output channels
    int rows;          // of outputs
    int reach;         // filter rows that share an input; 1: every step loads its own
    int stride;        // of rows, where reach > 1
    int warpgroups;    // that compute; one more loads and stores
    int turn = 0;      // rows of inputs at a time, where a row of the filter is one step
    bool tall = false; // there: a task is all rows of a unit, worked out `rows` at a time
    __host__ __device__ constexpr int pixels() const { return pixel_rows ? 2 : 1; }  // of a lane
    __host__ __device__ constexpr int weights() const { return pixel_rows ? 2 : 4; } // of a lane
    __host__ __device__ constexpr int columns() const { return group ? 64 : 8 * pixels(); }
    __host__ __device__ constexpr int window() const { // rows of inputs
        return (rows - 1) * stride + reach;
    }
    __host__ __device__ constexpr int workers() const { // tasks at a time
        return group ? warpgroups : warpgroups * 4;
    }
    __host__ __device__ constexpr int threads() const { return (warpgroups + 1) * 128; }
    // Of a thread that computes, and of one that loads or stores.
    __host__ __device__ constexpr int registers() const { return warpgroups == 2 ? 224 : 152; }
    __host__ __device__ constexpr int helpers_registers() const {
        return warpgroups == 2 ? 56 : 56;
    }
};

constexpr Form Forms[] = {
    {false, true, 1, 8, 1, 1, 3},   {false, false, 1, 8, 1, 1, 3},
    {false, true, 1, 10, 7, 1, 3},  {true, true, 3, 2, 1, 1, 3},
    {true, true, 4, 2, 1, 1, 3},    {true, true, 8, 2, 1, 1, 3},
    {true, true, 3, 6, 5, 1, 2, 3}, {true, true, 3, 6, 5, 1, 2},
    {true, true, 3, 3, 5, 1, 3},    {true, true, 4, 2, 7, 1, 3},
    {true, true, 8, 2, 7, 2, 2},    {false, true, 1, 2, 7, 1, 3, 0, true},
};
constexpr int FormCount = sizeof(Forms) / sizeof(Forms[0]);

// The order of a sum. A row of the filter has `elements` products: each pair of channel and column,
// in the order in which the inputs lie in memory. A step of the tensor core takes two halves of
// four. With reach > 1 a row has `full` steps; the half that may be left of them forms steps with
// that of the next row. Otherwise rows follow each other without a gap. What fills up the last
// half has zeros for weights and repeats an input.
//
// Two, four or eight neighbouring pixels may share a column (a Toeplitz matrix): the window is then
// wider by all but one of them, and the weights of each begin a column later than its left one's.
struct Order {
    int nhwc, c, r, s;
    int neighbours; // pixels of a column
    int window;     // columns of inputs
    int elements;
    int full, odd; // reach > 1
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
    __host__ __device__ Tap tap(int reach, int step, int half, int t) const {
        if (reach == 1) {
            const int f = 8 * step + 4 * half + t, all = elements * r;
            const int e = f < all ? f : all - 1;
            Tap tap = element(e % elements, e / elements);
            tap.live = f < all;
            return tap;
        }
        if (step < full * reach)
            return element(step / reach * 8 + 4 * half + t, step % reach);
        const int row = 2 * (step - full * reach) + half;
        Tap tap = element(full * 8 + t, row);
        tap.live = tap.live && row < r;
        return tap;
    }
};

inline Order order_of(const cf_problem &p, const Form &form, int neighbours) {
    Order o = {p.layout == CF_NHWC, p.c, p.r, p.s, neighbours};
    o.window = p.s + neighbours - 1;
    o.elements = p.c * o.window;
    if (form.reach == 1) {
        o.steps = int(ceil_div(o.elements * p.r, 8));
    } else {
        const int halves = int(ceil_div(o.elements, 4));
        o.full = halves / 2, o.odd = halves % 2;
        o.steps = o.full * form.reach + o.odd * int(ceil_div(form.reach, 2));
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
__host__ __device__ inline Weight weight_at(const Order &order, const Form &form, bool three,
                                            int channels, int64_t i) {
    const auto digit = [&](int base) {
        const int d = int(i % base);
        i /= base;
        return d;
    };
    const int parts = three ? 2 : 1;
    int part, tile, g, t, reg; // lane 4 g + t; reg counts halves and, of 16 channels, those 8 on
    if (form.group) {
        t = digit(4), g = digit(8), tile = digit(form.tiles), reg = digit(2);
        part = digit(parts);
    } else {
        reg = digit(form.weights()), t = digit(4), g = digit(8);
        part = digit(parts), tile = digit(form.tiles);
    }
    const int step = digit(order.steps), group = int(i);
    const Order::Tap tap = order.tap(form.reach, step, form.pixel_rows ? reg : reg / 2, t);
    const int column =
        !form.pixel_rows ? tile * 16 + g + reg % 2 * 8 : (tile * 8 + g) / order.neighbours;
    const int s = tap.s - g % order.neighbours;
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
    int form; // -1 where none fits
    Order order;
    int channels; // of a group
    int groups;
    int64_t floats; // of the packed filter
    bool three;     // parts: hi and lo
};

inline Choice choose(const cf_problem &p, int form, int neighbours) {
    const Form &f = Forms[form];
    Choice choice = {form, order_of(p, f, neighbours)};
    choice.channels = f.tiles * (f.pixel_rows ? 8 : 16) / neighbours;
    choice.groups = int(ceil_div(p.k, choice.channels));
    choice.three = p.math == CF_MATH_FP32;
    choice.floats = int64_t(choice.groups) * choice.order.steps * f.tiles * (choice.three ? 2 : 1) *
                    32 * f.weights();
    return choice;
}

// Numbers of the table of places of inputs.
inline int places(const Choice &choice) {
    const Order &o = choice.order;
    return Forms[choice.form].reach == 1 ? 8 * o.steps : 4 * (2 * o.full + o.odd);
}

// A problem as the kernel wants it, and how it is cut. Offsets in shared memory are bytes.
struct Cut {
    Order order;
    int h, k, p, q, stride_h, pad_top;
    int channels, groups;
    int across;  // columns of a line
    int height;  // rows of outputs of a row tile
    int tiles;   // row tiles of a unit
    int strips;  // units of an image
    int units;   // of the batch
    int columns; // of a unit
    int rows;    // input rows of a unit
    int slots;
    int loaders;      // warps that load; the others of four store
    uint32_t pixel;   // from input pixel to input pixel in a slot
    uint32_t pitch;   // from row to row
    uint32_t plane;   // from channel to channel in NCHW
    uint32_t slot;    // from slot to slot
    uint32_t step;    // from column to column
    int begin;        // of the first column's window in a slot
    int planes, wide; // an image in memory: planes of h rows of so many floats
    // Bulk copies of a unit, each so many bytes, but not beyond the end of its plane.
    int bulks;
    int64_t bulk, end;
    // Without them: bytes that one lane copies at once, how many such pieces a row has, and the
    // zeros around it.
    int piece, row_pieces;
    int left, zeros_left, zeros_right;
    // Items that are gathered in shared memory before they are stored; 0 where warps store their
    // sums themselves.
    int stages;
    uint32_t stage, stage_plane;
    uint32_t weights; // bytes of the filter in shared memory, or 0
    int paired;       // two values of a lane lie next to each other in y
    Divisor by_across, by_tiles, by_groups, by_strips, by_slots, by_stages;
};

struct Plan {
    Choice choice;
    Cut cut;
    double clocks;
};

// Rows of y that are no whole sectors, so that two warps write to one.
inline bool ragged(const cf_problem &p) {
    return p.layout == CF_NCHW ? p.q % 8 || int64_t(p.p) * p.q % 8 : p.k % 8 != 0;
}

// Clocks that one task takes of a multiprocessor that is busy with as many as it takes. A product
// of mma.sync takes 6 on one of its four schedulers and hardly overlaps with other instructions,
// which take 1; some 20 % are waits. wgmma takes half its columns, or 13, on all four. What goes
// with it did not overlap as hoped: the factors are fitted to 20 measured times and within 27 %.
inline double task_clocks(const Choice &choice, int height) {
    const Form &f = Forms[choice.form];
    const Order &o = choice.order;
    const int parts = choice.three ? 2 : 1;
    const double steps = double(o.steps) * height * (choice.three ? 3 : 1);
    // Loaded values, which are split; additions to sums; per task and column of the filter.
    double values, promotions;
    if (f.reach == 1) {
        values = double(o.steps) * f.rows * 2;
        promotions = o.steps / Ahead + o.steps % Ahead;
    } else {
        values = double(f.window()) * (2 * o.full + o.odd);
        promotions = o.full * ceil_div(f.reach, Ahead) + o.odd;
    }
    const double sums = height * f.tiles;
    if (f.tall) {
        const double loads = 2.0 * (height + f.reach - 1) * f.pixels() * (choice.three ? 5 : 2);
        return (steps * f.tiles * 6 + loads + sums * 16 + 600) * 1.3 / 4;
    }
    const double passes =
        values * f.pixels() * (choice.three ? 5 : 2) + (choice.three ? promotions * sums * 4 : 0);
    if (f.group)
        return (1.14 * steps * std::max(f.tiles * 4, 13) + 1.1 * passes + 128 * sums) *
               (f.warpgroups == 2 ? 1.07 : 1); // they hide less
    const double others = passes + 2 * parts * f.tiles * o.steps + sums * 16 + 500;
    return (steps * f.tiles * 6 + others) * 1.2 / 4;
}

// With so many row tiles to a unit; false where it does not fit.
inline bool cut_into(const cf_call *call, const Choice &choice, int tiles, bool staged,
                     bool resident, Cut &cut) {
    const cf_problem &p = call->problem;
    const Form &f = Forms[choice.form];
    const bool nhwc = p.layout == CF_NHWC;
    const int64_t all = ceil_div(p.p, f.rows);
    cut = {};
    cut.order = choice.order;
    cut.h = p.h, cut.k = p.k, cut.p = p.p, cut.q = p.q;
    cut.stride_h = p.stride_h, cut.pad_top = p.pad_top;
    cut.channels = choice.channels, cut.groups = choice.groups;
    cut.across = p.q / choice.order.neighbours;
    cut.tiles = f.tall ? 1 : tiles;
    cut.height = f.tall ? tiles * f.rows : f.rows;
    cut.strips = int(ceil_div(all, tiles));
    // Columns and items are counted in 31 bits.
    if (double(p.n) * cut.strips * tiles * p.q * cut.groups > (1 << 30))
        return false;
    cut.units = int(p.n * cut.strips);
    cut.columns = cut.tiles * cut.across;
    cut.rows = (tiles * f.rows - 1) * p.stride_h + p.r;
    cut.planes = nhwc ? 1 : p.c;
    cut.wide = nhwc ? p.w * p.c : p.w;
    cut.pixel = nhwc ? 4 * p.c : 4;
    cut.step = cut.pixel * p.stride_w * choice.order.neighbours;
    cut.paired =
        p.align >= 8 && (nhwc ? f.pixel_rows && choice.order.neighbours == 1 && p.k % 2 == 0
                              : p.q % 2 == 0 && (!f.pixel_rows || choice.order.neighbours > 1));

    // Row tiles may read below the image, and the last strip may have fewer rows: sums of what
    // lies there are not stored.
    const int64_t area = int64_t(p.h) * cut.wide, image = cut.planes * area;
    const bool unpadded = !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    const int64_t advance = int64_t(tiles) * f.rows * p.stride_h * cut.wide; // of a strip
    int64_t pitch = int64_t(cut.wide) * 4, plane, slot;
    if (unpadded && p.align >= 16 && cut.strips == 1 && image % 4 == 0) {
        cut.bulks = 1;
        cut.bulk = cut.end = image * 4;
        plane = area * 4;
        slot = (cut.planes - 1) * plane + std::max<int64_t>(cut.rows, p.h) * pitch;
    } else if (unpadded && p.align >= 16 && area % 4 == 0 && advance % 4 == 0) {
        cut.bulks = cut.planes;
        cut.bulk = plane = ceil_div(cut.rows * pitch, 16) * 16;
        cut.end = area * 4;
        slot = cut.planes * plane;
    } else {
        cut.piece = p.align >= 16 && cut.wide % 4 == 0 ? 16 : 4;
        cut.row_pieces = cut.wide * 4 / cut.piece;
        cut.zeros_left = p.pad_left * int(cut.pixel) / 4;
        cut.zeros_right = p.pad_right * int(cut.pixel) / 4;
        cut.left = int(ceil_div(cut.zeros_left * 4, cut.piece) * cut.piece);
        pitch = ceil_div(cut.left + pitch + cut.zeros_right * 4, cut.piece) * cut.piece;
        plane = cut.rows * pitch;
        slot = cut.planes * plane;
    }
    cut.loaders = cut.bulks ? 1 : staged ? 2 : 4;
    cut.begin = cut.left - p.pad_left * int(cut.pixel);
    slot = ceil_div(slot, 128) * 128;
    int64_t budget = call->device.shared_per_block - 2048 - 4 * places(choice);
    if (resident) {
        cut.weights = uint32_t(choice.floats * 4);
        budget -= choice.floats * 4;
    }
    if (staged) {
        if (nhwc || f.tall)
            return false;
        // A plane begins as far behind a sector of 32 bytes as its place in y does. Channels that a
        // warp writes at once lie in other banks.
        const int64_t words = ceil_div(int64_t(f.rows) * p.q + 7, 4) * 4;
        cut.stage_plane = uint32_t(words + ((4 * choice.order.neighbours - words) & 31)) * 4;
        cut.stage = choice.channels * cut.stage_plane;
        // A task writes items of all lines that it touches, while tasks before it may not have
        // written theirs: with fewer stages each could wait for the other. One more, because a
        // stage is handed back when the next item is being stored. And as many as lie between a
        // warp's items and those of the tasks before them that may still run: a barrier's bit would
        // mislead a warp that is two turns of the ring ahead of what is stored.
        const int64_t touched = (ceil_div(f.columns() - 1, cut.across) + 1) * cut.groups;
        const int64_t blocks = ceil_div(f.workers(), cut.groups) + 1;
        const int64_t apart = (ceil_div(blocks * f.columns(), cut.across) + 1) * cut.groups;
        cut.stages = int(std::max(touched + 1, apart));
        if (cut.stages > MaxStages)
            return false;
        budget -= int64_t(cut.stages) * cut.stage;
    }
    const int64_t fit = budget / slot;
    const int64_t of_block = std::max<int64_t>(ceil_div(cut.units, call->device.sm_count), 1);
    // All units that a task may touch have to be there together, and one more to be on its way.
    const int64_t touched = ceil_div(f.columns() - 1, cut.columns) + 1;
    if (budget < 0 || fit < std::max<int64_t>(touched, 2) || touched > MaxSlots)
        return false;
    cut.pitch = uint32_t(pitch);
    cut.plane = uint32_t(plane);
    cut.slot = uint32_t(slot);
    cut.slots = int(std::min({fit, int64_t(MaxSlots), of_block}));
    return true;
}

// Clocks of the busiest multiprocessor.
inline double clocks(const cf_call *call, const Choice &choice, const Cut &cut) {
    const cf_problem &p = call->problem;
    const Form &f = Forms[choice.form];
    const double units = double(ceil_div(cut.units, call->device.sm_count));
    const double tasks = std::ceil(units * cut.columns / f.columns()) * choice.groups;
    // Weights from the second-level cache come at some 24 bytes a clock, and late.
    const double weights = cut.weights ? 0 : tasks * choice.floats / choice.groups * 4 / 24;
    double products =
        std::ceil(tasks / f.workers()) * f.workers() * task_clocks(choice, cut.height) + weights;
    double storing = 0;
    if (cut.stages) {
        products *= 1.05; // warps wait for each other
        const double planes = 4.0 * (4 - cut.loaders);
        storing = units * cut.tiles * cut.groups * (450 + 750 * std::ceil(cut.channels / planes));
    }
    const double bytes = 4.0 * cut.rows * cut.wide * cut.planes;
    const double outputs = 4.0 * p.k * std::min(cut.tiles * cut.height, p.p) * p.q;
    // Bytes per clock; sectors that two warps write cost as much as two and a half.
    const double memory = units * (bytes + outputs * (ragged(p) && !cut.stages ? 2.5 : 1)) / 17;
    // A loading warp takes some 200 clocks for as many small copies as it has lanes.
    const double pieces = cut.planes * cut.rows * double(ceil_div(cut.row_pieces, 32));
    const double loading = cut.bulks ? 0 : pieces * 200 / cut.loaders;
    const double first = 1500 + bytes / 32 + loading;
    // A unit is waited for and handed back.
    return first + units * 40 + std::max({products, memory, storing, units * loading}) +
           0.15 * std::min(products, memory);
}

// The form with the fewest clocks for a multiprocessor's row of images, whatever the batch.
inline Choice choice_of(const cf_call *call) {
    const cf_problem &p = call->problem;
    Choice best = {-1};
    double least = 0;
    for (int form = 0; form < FormCount; ++form) {
        const Form &f = Forms[form];
        if (f.reach > 1 && (p.r != f.reach || p.stride_h != f.stride))
            continue; // not compiled
        for (int neighbours = 1; neighbours <= 8; neighbours *= 2) {
            if (neighbours > 1 && (!f.pixel_rows || p.q % neighbours || p.stride_w != 1))
                continue;
            const Choice choice = choose(p, form, neighbours);
            if ((f.turn > 0 || f.tall) && (choice.order.full != 1 || choice.order.odd))
                continue;
            // Others are faster where they gather rows, and in math tf32, where memory decides.
            if (f.tall &&
                ((ragged(p) && p.layout == CF_NCHW) || choice.groups > 1 || !choice.three))
                continue;
            cf_call one = *call;
            one.problem.n = 1;
            Cut cut;
            if (!cut_into(&one, choice, 1, false, f.group, cut))
                continue;
            // In whole images or single row tiles.
            cf_call row = one;
            row.problem.n = 8, row.device.sm_count = 1;
            double fewest = INFINITY;
            for (const int64_t tiles : {ceil_div(p.p, f.rows), int64_t(1)})
                for (const bool staged : {false, true})
                    if ((!staged || ragged(p)) &&
                        cut_into(&row, choice, int(tiles), staged, f.group, cut))
                        fewest = std::min(fewest, clocks(&row, choice, cut));
            if (best.form < 0 || fewest < least)
                best = choice, least = fewest;
        }
    }
    return best;
}

// The plan with the fewest clocks; choice.form is -1 where none fits.
inline Plan plan_of(const cf_call *call) {
    const cf_problem &p = call->problem;
    Plan best = {choice_of(call), {}, 0};
    if (best.choice.form < 0)
        return best;
    const int all = int(ceil_div(p.p, Forms[best.choice.form].rows));
    for (int tiles = 1; tiles <= all; ++tiles) {
        // Each number of strips once, with as few row tiles as it needs.
        if (tiles > 1 && ceil_div(all, tiles) == ceil_div(all, tiles - 1))
            continue;
        for (int way = 3; way >= 0; --way) {
            Cut cut;
            if ((way & 1) && !ragged(p))
                continue;
            if (!(way & 2) && Forms[best.choice.form].group)
                continue; // wgmma reads weights there
            if (!cut_into(call, best.choice, tiles, way & 1, way & 2, cut))
                continue;
            const double estimate = clocks(call, best.choice, cut);
            if (best.clocks == 0 || estimate < best.clocks)
                best.cut = cut, best.clocks = estimate;
        }
    }
    if (best.clocks == 0)
        best.choice.form = -1;
    return best;
}

} // namespace cf::small_mma
