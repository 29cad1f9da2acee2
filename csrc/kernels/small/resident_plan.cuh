// How small_resident tiles a batch: which words of x a product takes, and which rows of y a block
// computes from one box of x in shared memory.
//
// A word is 4 bytes of a row of x as they lie in memory: one float, or two 16-bit elements. The
// window of a pixel is so many words of each of its rows (and planes in NCHW); a step of the sum
// takes eight of them. A strip is some rows of y of an image; a task is 32 of its pixels, as two
// sets of 16, in a group of 32 output channels.
#pragma once

#include "core/divisor.cuh"
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/tensor_map.cuh"
#include "kernels/small/few_channels.cuh"

#include <algorithm>
#include <climits>
#include <cmath>

namespace cf::resident {

constexpr int MinChannels = 8; // of y in math fp32
constexpr int MaxStages = 32;  // strips in shared memory
constexpr int MaxSteps = 4;
constexpr int Tiles = 4; // of 8 output channels, in a group
constexpr int Group = Tiles * 8;
constexpr int Sets = 2;
constexpr int TaskPixels = 16 * Sets;
constexpr int MaxBox = 256;           // elements along a side of a box
constexpr int StaticShared = 1024;    // at most; barriers and counters
constexpr int MaxTasks = 1 << 30;     // of a batch
constexpr double PinShare = 0.798804; // of what memory's pins give, see memory_rate()

// As many as have room for the filter and a task in their registers.
__host__ __device__ constexpr int warps_of(int element_bytes) {
    return element_bytes == 4 ? 12 : 16;
}

inline int pixel_bytes(const cf_problem &p) {
    return element_bytes(p) * (p.layout == CF_NHWC ? p.c : 1);
}
inline int planes_of(const cf_problem &p) { return p.layout == CF_NHWC ? 1 : p.c; }
// Of the filter: hi and lo in math fp32.
inline int parts_of(const cf_problem &p) { return p.math == CF_MATH_FP32 ? 2 : 1; }

// The rows of a box, and where windows lie in them.
struct Row {
    int element; // of the tensor map, in bytes
    int begin;   // elements before x
    int columns; // elements
    int first;   // bytes from the row's begin to the word that the first window begins in
    int lead;    // bytes of that word before it
    int words;   // of a window
    bool fits;
};

inline Row row_of(const cf_problem &p) {
    const int64_t pixel = pixel_bytes(p), pad = p.pad_left * pixel, begin = round_up(pad, 16);
    Row row = {};
    row.lead = int((begin - pad) % 4);
    row.first = int(begin - pad) - row.lead;
    row.words = int(ceil_div(row.lead + p.s * pixel, 4));
    const int64_t end = row.first + int64_t(p.q - 1) * p.stride_w * pixel + row.words * int64_t(4);
    // The widest element that is needed: a box has few of them.
    for (row.element = element_bytes(p); row.element <= 8; row.element *= 2) {
        const int64_t columns = round_up(end, 16) / row.element;
        row.begin = int(std::min<int64_t>(begin / row.element, INT_MAX));
        row.columns = int(std::min<int64_t>(columns, INT_MAX));
        row.fits = columns <= MaxBox && row.begin < INT_MAX;
        if (row.fits)
            break;
    }
    return row;
}

inline int64_t words_of(const cf_problem &p) {
    return int64_t(row_of(p).words) * p.r * planes_of(p);
}

// Steps that are compiled.
inline int steps_of(const cf_problem &p) {
    return p.storage == CF_STORE_F32 ? 4 : p.layout == CF_NHWC ? 2 : 3;
}

inline uint64_t packed_bytes(const cf_problem &p) {
    return uint64_t(ceil_div(p.k, Group)) * parts_of(p) * steps_of(p) * Tiles * 64 * 4;
}

// How a filter is packed: as lanes hold it, [group][part][step][two tiles][lane][tile][half of
// the step], in words.
struct Order {
    int k, c, r, s;
    bool nhwc;
    int parts, steps;
    Row row;
    int words; // of all rows of a window
};

inline Order order_of(const cf_problem &p) {
    return {p.k,
            p.c,
            p.r,
            p.s,
            p.layout == CF_NHWC,
            parts_of(p),
            steps_of(p),
            row_of(p),
            int(words_of(p))};
}

// For cf_plan::filter_layout: all of it that pack_kernel looks at. A window has up to 8 * MaxSteps
// words, of one element or two.
inline uint64_t filter_layout(const cf_problem &p) {
    const Order order = order_of(p);
    uint64_t id = 0;
    const auto digit = [&](int value, int base) { id = id * base + value; };
    digit(order.c, MostInputs + 1), digit(order.k, MostOutputs + 1);
    digit(order.r, 8 * MaxSteps + 1), digit(order.s, 16 * MaxSteps + 1);
    digit(order.row.lead, 4), digit(order.row.words, 8 * MaxSteps + 1);
    digit(p.storage, 3), digit(order.parts, 3), digit(order.nhwc, 2);
    return id;
}

// A problem as the kernel wants it, and how it is tiled. Offsets in shared memory are bytes.
struct Tiling {
    int k, p, q;
    int rows; // of y in a strip
    int strips_per_image;
    int strips; // of the batch
    int tasks;  // of a strip and a group
    int groups;
    int stages; // of the ring of strips
    int stride_h, pad_top, begin;
    uint32_t stage_bytes;
    uint32_t pixel_step, row_step;  // from pixel to pixel of y, from row to row of y
    uint32_t box_bytes;             // as a copy loads them
    int word_offsets[MaxSteps * 8]; // of each word, from the window's first
    Divisor by_image, by_tasks, by_q, by_groups;
};

// A tiling with the boxes that it copies.
struct Option {
    Tiling tiling;
    Box box;
    double clocks; // estimated
};

// Bytes in a clock of each multiprocessor: 17 of 132 at 1.75 GHz.
inline double memory_rate(const cf_device &device) {
    return PinShare * bytes_per_clock(device, TensorClock);
}

// Clocks of the busiest multiprocessor, which has so many strips: products take 6 on one of four
// schedulers and hardly overlap with other instructions
// (benches/results/evidence/h200-small-resident-experiments.txt).
inline double clocks(const cf_query &query, const Tiling &t, int64_t of_block) {
    const cf_problem &p = query.problem;
    const int bytes = element_bytes(p), warps = warps_of(bytes), workers = warps / t.groups;
    const int products_each = p.math == CF_MATH_FP32 ? 3 : 1;
    const double products = Sets * Tiles * steps_of(p) * products_each * 6;
    const double others = Sets * steps_of(p) * (products_each == 3 ? 46 : 16) + 140;
    const double rounds = double(of_block) * t.tasks / workers; // the last of which is whole
    const double computing =
        std::max(rounds, std::ceil(rounds) - 0.5) * (products + others) * warps / 4;
    const double rate = memory_rate(query.device);
    const double in = double(t.box_bytes), out = double(t.rows) * p.q * p.k * bytes;
    const bool refilled = t.stages < of_block; // stages: strips are waited for
    const double memory = double(of_block) * ((in + out) / rate + (refilled ? 400 : 0));
    const double all = 1000 + in / rate + std::max(computing, memory);
    // What many planes get at a time lies far apart.
    return refilled ? all * (1 + std::max(p.k * bytes - 64, 0) / 730.0) : all;
}

// With so many rows of y to a strip; false where it does not fit.
inline bool tile(const cf_query &query, const Row &row, int rows, Option &option) {
    const cf_problem &p = query.problem;
    const int planes = planes_of(p);
    const int64_t strips = ceil_div(p.p, rows), tasks = ceil_div(int64_t(rows) * p.q, TaskPixels);
    const int64_t in_rows = int64_t(rows - 1) * p.stride_h + p.r;
    // Strips and tasks are counted in 31 bits.
    if (double(std::max<int64_t>(p.n, 1)) * strips * tasks > MaxTasks || in_rows > MaxBox)
        return false;
    const int64_t pitch = int64_t(row.columns) * row.element, plane = in_rows * pitch;
    const int64_t stage_bytes = round_up(planes * plane, 128);
    option = {};
    Tiling &t = option.tiling;
    t.k = p.k, t.p = p.p, t.q = p.q;
    t.rows = rows;
    t.strips_per_image = int(strips);
    t.strips = int(p.n * strips);
    t.tasks = int(tasks);
    t.groups = int(ceil_div(p.k, Group));
    const int64_t of_block = std::max<int64_t>(ceil_div(t.strips, query.device.sm_count), 1);
    const int64_t fit = (query.device.shared_per_block - StaticShared) / stage_bytes;
    if (fit < std::min<int64_t>(of_block, 2))
        return false;
    t.stages = int(std::min({fit, of_block, int64_t(MaxStages)}));
    // A warp that has nothing to do in a strip would not know that its stage has another one by
    // now.
    if (t.stages < of_block && t.tasks < warps_of(element_bytes(p)) / t.groups)
        return false;
    t.stride_h = p.stride_h, t.pad_top = p.pad_top, t.begin = -row.begin;
    t.stage_bytes = uint32_t(stage_bytes);
    t.pixel_step = uint32_t(int64_t(p.stride_w) * pixel_bytes(p));
    t.row_step = uint32_t(p.stride_h * pitch);
    t.box_bytes = uint32_t(planes * plane);
    const int64_t words = int64_t(row.words) * p.r * planes;
    for (int i = 0; i < MaxSteps * 8; ++i) {
        // What fills up the last step has weights of zero, and repeats the last word.
        const int word = int(std::min<int64_t>(i, words - 1)), line = word / row.words;
        t.word_offsets[i] =
            int(row.first + line / p.r * plane + line % p.r * pitch + word % row.words * 4);
    }
    // A batch may be empty, a tensor not.
    option.box = {row.element,
                  {uint64_t(p.w) * pixel_bytes(p) / row.element, uint64_t(p.h), uint64_t(planes),
                   uint64_t(std::max<int64_t>(p.n, 1))},
                  {uint32_t(row.columns), uint32_t(in_rows), uint32_t(planes), 1}};
    option.clocks = clocks(query, t, of_block);
    return true;
}

// The one that takes the fewest clocks; there are no stages where none fits.
inline Option best_option(const cf_query &query) {
    const Row row = row_of(query.problem);
    Option best = {};
    for_strip_heights(query.problem.p, [&](int rows) {
        Option option;
        if (row.fits && tile(query, row, rows, option) &&
            (best.tiling.stages == 0 || option.clocks < best.clocks))
            best = option;
    });
    Tiling &t = best.tiling;
    if (t.stages > 0) {
        t.by_image = Divisor(t.strips_per_image);
        t.by_tasks = Divisor(t.tasks);
        t.by_q = Divisor(t.q);
        t.by_groups = Divisor(t.groups);
    }
    return best;
}

} // namespace cf::resident
