// How small_resident cuts a batch: which words of x a product takes, and which rows of y a block
// computes from one box of x in shared memory.
//
// A word is 4 bytes of a row of x as they lie in memory: one float, or two 16-bit elements. The
// window of a pixel is so many words of each of its rows (and planes in NCHW); a step of the sum
// takes eight of them. A unit is some rows of y of an image; a task is 32 of its pixels, as two
// sets of 16, in a group of 32 output channels.
#pragma once

#include "core/divisor.cuh"
#include "core/launch.cuh"
#include "ptx/tensor.cuh"

#include <algorithm>
#include <climits>
#include <cmath>

namespace cf::resident {

constexpr int MinChannels = 8; // of y in math fp32
constexpr int MaxSlots = 32;   // units in shared memory
constexpr int MaxSteps = 4;
constexpr int Tiles = 4; // of 8 output channels, in a group
constexpr int Group = Tiles * 8;
constexpr int Sets = 2;
constexpr int TaskPixels = 16 * Sets;

// As many as have room for the filter and a task in their registers.
__host__ __device__ constexpr int warps_of(int element_bytes) {
    return element_bytes == 4 ? 12 : 16;
}

inline int element_bytes(const cf_problem &p) { return p.storage == CF_STORE_F32 ? 4 : 2; }
inline int pixel_bytes(const cf_problem &p) {
    return element_bytes(p) * (p.layout == CF_NHWC ? p.c : 1);
}
inline int planes_of(const cf_problem &p) { return p.layout == CF_NHWC ? 1 : p.c; }

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
    const int pixel = pixel_bytes(p);
    Row row = {};
    // The widest element that is needed: a box has at most 256 of them.
    for (row.element = element_bytes(p); row.element <= 8; row.element *= 2) {
        const int pad = p.pad_left * pixel, begin = int(ceil_div(pad, 16) * 16);
        row.begin = begin / row.element;
        row.lead = (begin - pad) % 4;
        row.first = begin - pad - row.lead;
        row.words = int(ceil_div(row.lead + p.s * pixel, 4));
        const int64_t end = row.first + int64_t(p.q - 1) * p.stride_w * pixel + row.words * 4;
        const int64_t columns = ceil_div(end, 16) * 16 / row.element;
        row.columns = int(std::min<int64_t>(columns, INT_MAX));
        row.fits = columns <= 256;
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

// A problem as the kernel wants it. Offsets in shared memory are bytes.
struct Cut {
    int k, p, q;
    int rows;   // of y in a unit
    int strips; // units of an image
    int units;  // of the batch
    int tasks;  // of a unit and a group
    int groups;
    int slots;
    int stride_h, pad_top, begin;
    uint32_t slot;            // from slot to slot
    uint32_t step, row_step;  // from pixel to pixel of y, from row to row of y
    uint32_t box_bytes;       // as a copy brings them
    int places[MaxSteps * 8]; // of each word, from the window's first
    Divisor by_strips, by_tasks, by_q, by_groups;
};

struct Plan {
    Cut cut;
    Box box;
    double clocks;
};

// With so many rows of y to a unit; false where it does not fit.
inline bool cut_into(const cf_call *call, int rows, Plan &plan) {
    const cf_problem &p = call->problem;
    const Row row = row_of(p);
    const int bytes = element_bytes(p), planes = planes_of(p);
    plan = {};
    Cut &cut = plan.cut;
    cut.k = p.k, cut.p = p.p, cut.q = p.q;
    cut.rows = rows;
    cut.strips = int(ceil_div(p.p, rows));
    cut.tasks = int(ceil_div(int64_t(rows) * p.q, TaskPixels));
    cut.groups = int(ceil_div(p.k, Group));
    // Units and tasks are counted in 31 bits.
    if (double(p.n) * cut.strips * cut.tasks > (1 << 30))
        return false;
    cut.units = int(p.n * cut.strips);
    const int64_t in_rows = int64_t(rows - 1) * p.stride_h + p.r;
    const int64_t pitch = int64_t(row.columns) * row.element, plane = in_rows * pitch;
    const int64_t slot = ceil_div(planes * plane, 128) * 128;
    const int64_t of_block = std::max<int64_t>(ceil_div(cut.units, call->device.sm_count), 1);
    const int64_t fit = (call->device.shared_per_block - 1024) / slot;
    if (in_rows > 256 || fit < std::min<int64_t>(of_block, 2))
        return false;
    cut.slots = int(std::min({fit, of_block, int64_t(MaxSlots)}));
    const int workers = warps_of(bytes) / cut.groups;
    // A warp that has nothing to do in a unit would not know that its slot has another one by now.
    if (cut.slots < of_block && cut.tasks < workers)
        return false;
    cut.stride_h = p.stride_h, cut.pad_top = p.pad_top, cut.begin = -row.begin;
    cut.slot = uint32_t(slot);
    cut.step = p.stride_w * pixel_bytes(p);
    cut.row_step = uint32_t(p.stride_h * pitch);
    cut.box_bytes = uint32_t(planes * plane);
    for (int i = 0; i < MaxSteps * 8; ++i) {
        // What fills up the last step has weights of zero, and repeats the last word.
        const int word = int(std::min<int64_t>(i, words_of(p) - 1)), line = word / row.words;
        cut.places[i] =
            int(row.first + line / p.r * plane + line % p.r * pitch + word % row.words * 4);
    }
    plan.box = {row.element,
                {uint64_t(p.w) * pixel_bytes(p) / row.element, uint64_t(p.h), uint64_t(planes),
                 uint64_t(p.n)},
                {uint32_t(row.columns), uint32_t(in_rows), uint32_t(planes), 1}};

    // Clocks of the busiest multiprocessor: products take 6 on one of four schedulers and hardly
    // overlap with other instructions.
    const int parts = p.math == CF_MATH_FP32 ? 3 : 1;
    const double products = Sets * Tiles * steps_of(p) * parts * 6;
    const double others = Sets * steps_of(p) * (parts == 3 ? 46 : 16) + 140;
    const double turns = double(of_block) * cut.tasks / workers; // the last of which is whole
    const double computing =
        std::max(turns, std::ceil(turns) - 0.5) * (products + others) * warps_of(bytes) / 4;
    const double in = double(cut.box_bytes), out = double(rows) * p.q * p.k * bytes;
    const bool in_turn = cut.slots < of_block; // units are waited for
    const double memory = double(of_block) * ((in + out) / 17 + (in_turn ? 400 : 0));
    plan.clocks = 1000 + in / 17 + std::max(computing, memory);
    // What many planes get at a time lies far apart.
    if (in_turn)
        plan.clocks *= 1 + std::max(p.k * bytes - 64, 0) / 730.0;
    return true;
}

// The plan with the fewest clocks; there are no slots where none fits.
inline Plan plan_of(const cf_call *call) {
    const int all = call->problem.p;
    Plan best = {};
    for (int rows = 1; rows <= all; ++rows) {
        // Each number of strips once.
        if (rows > 1 && ceil_div(all, rows) == ceil_div(all, rows - 1))
            continue;
        Plan plan;
        if (cut_into(call, rows, plan) && (best.cut.slots == 0 || plan.clocks < best.clocks))
            best = plan;
    }
    return best;
}

} // namespace cf::resident
