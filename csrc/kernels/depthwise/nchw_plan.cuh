// The planner of depthwise_nchw: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/evict_first.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/ranking.cuh"
#include "core/room.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>
#include <bitset>

namespace cf::depthwise_nchw {

using namespace depthwise;

constexpr int Warps = 4;          // of a block
constexpr int MaxStages = 16;     // of the ring that strips go through
constexpr int MostPlanes = 256;   // that lie whole in a strip, but for those that make pieces whole
constexpr int StaticShared = 384; // bytes that the barriers take

// How a thread reads rows of x: by vectors of so many bytes, for so many adjacent columns of y.
struct Form {
    int vector, columns;
};
// With vectors, as many columns as registers have room for, but no more than let neighbours load
// from different banks.
__host__ __device__ constexpr int columns_of(int stride, int element_bytes, int vector) {
    return stride == 1 && (element_bytes == 2 || vector == 16) ? 8 : 4;
}
// In f32 without a stride single words, too: they let neighbours with 7 columns do so, which are
// whole tiles of rows of 7, 14, 28 and 56.
constexpr int WordColumns = 7;
__host__ __device__ constexpr bool has_words(int stride, int element_bytes) {
    return element_bytes == 4 && stride == 1;
}
// Large filters have products enough to hide more loads: beside words they have vectors of 16 bytes
// alone.
__host__ __device__ constexpr bool has_vectors(int r, int stride, int element_bytes, int vector) {
    return r == 3 || vector == 16 || !has_words(stride, element_bytes);
}
// With those threads store y themselves in f32, so that shared memory has room for more of x.
__host__ __device__ constexpr bool stores_directly(int r, int element_bytes, int vector) {
    return r > 3 && element_bytes == 4 && vector == 16;
}
// Blocks that registers leave room for on a multiprocessor.
constexpr int MostBlocks = 6;
__host__ __device__ constexpr int blocks_of(int r, int columns) {
    return r == 3 ? MostBlocks : r == 7 && columns > 4 ? 3 : 4;
}

// Tensor cores multiply rows of 16 in columns of 8, of which the first begins so far behind a
// multiple of 8; blocks that registers leave room for then.
constexpr int BandRows = 16, BandLead = 4, BandBlocks = 6;

// Units, words or single 16-bit elements, that so many columns in front of a window's origin or
// from there on are loaded as; a fourth one comes with three.
__host__ __device__ constexpr int units_of(int columns, int unit_columns, int vector) {
    const int units = (columns + unit_columns - 1) / unit_columns;
    return vector == 16 && units % 4 == 3 ? units + 1 : units;
}
// Units that are loaded together from the i-th behind the origin on, of those before `end`.
__host__ __device__ constexpr int loaded_together(int i, int end, int vector) {
    for (int count = vector / 4; count > 1; count /= 2)
        if (i % count == 0 && i + count <= end)
            return count;
    return 1;
}
// A thread's columns of y that are stored together, at most: half as many, or one, are the other
// choices.
__host__ __device__ constexpr int most_together(int columns, int vector, int element_bytes) {
    const int most = (vector > 4 ? vector : 4) / element_bytes;
    return most < columns ? most : columns;
}

// What a row outside of x is read from: bytes before its origin and behind it.
constexpr int ZerosBefore = 16, ZerosBehind = 64, ZeroBytes = ZerosBefore + ZerosBehind;

// Words that a plane's filter may touch in memory: an odd number, so that those of planes beside
// each other lie in different banks.
__host__ __device__ constexpr int filter_words(int r, int element_bytes) {
    return element_bytes == 4 ? r * r : (r * r * 2 + 2) / 4;
}

// A strip is some whole planes beside each other in memory, or some rows of one. A task is some
// adjacent columns in some rows of y of one of its planes. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, p, q;
    int pad_top, pad_left;
    int planes;       // of x: images x channels
    int set;          // planes of a strip
    int strip_rows;   // of y in each of them
    int row_strips;   // of a plane
    int rows, pieces; // of y in a task; tasks below each other in a strip
    int tiles;        // of columns
    int tasks, strips;
    int stages;
    int finishes;     // whether there is an epilogue
    int activation;   // beyond what cf::Finish does
    bool evict_first; // whether lines of x leave the cache first (core/evict_first.cuh)
    int together;     // columns of y that are written as one word or two
    uint32_t stage_bytes, filter_bytes; // filters first, then rows of x,
    uint32_t output;                    // and from there on rows of y, where they are gathered
    Divisor by_row_strips, by_tiles, by_pieces, by_channels;
};

// What warps take one by one: 32 tasks, a lane each, or one on tensor cores.
__host__ __device__ __forceinline__ int sets_of(const Tiling &tiling, bool on_bands) {
    return on_bands ? tiling.tasks : (tiling.tasks + 31) / 32;
}

// Bytes, up to 16, that rows of so many bytes are multiples of and begin at multiples of.
inline int vector_bytes(int64_t row, int align, int element_bytes) {
    int bytes = 16;
    while (bytes > element_bytes && (row % bytes != 0 || align < bytes))
        bytes /= 2;
    return bytes;
}
// Bytes of x that are loaded together at most. Those of more than an element need windows that
// begin in the same place of one in every tile: padding as it is common.
inline int vector_bytes(const cf_problem &p) {
    const int size = element_bytes(p);
    if (p.pad_left != p.r / 2)
        return size;
    const int most = vector_bytes(int64_t(p.w) * size, p.align, size);
    // What is stored directly is stored by such vectors, too.
    return stores_directly(p.r, size, 16) && p.q % 4 != 0 ? std::min(most, 8) : most;
}

// Calls body with each form that a problem's threads may have.
template <class Body>
void for_forms(const cf_problem &p, Body body) {
    const int size = element_bytes(p), vector = vector_bytes(p);
    if (has_vectors(p.r, p.stride_h, size, vector))
        body(Form{vector, columns_of(p.stride_h, size, vector)});
    if (has_words(p.stride_h, size))
        body(Form{size, WordColumns});
}

inline int columns_together(const cf_problem &p, Form form) {
    const int size = element_bytes(p);
    const int most = most_together(form.columns, form.vector, size);
    const int fit = vector_bytes(int64_t(p.q) * size, p.align, size) / size;
    return fit >= most ? most : fit * 2 >= most ? (most + 1) / 2 : 1;
}

// Clocks that shared memory takes to read or write so many bytes at each lane's place: of 32 lanes,
// or of fewer by turns where they have more than a word, each bank gives one word at a time.
template <class Place>
int shared_clocks(int bytes, Place place) {
    const int words = bytes > 4 ? bytes / 4 : 1, lanes = 32 / words;
    int clocks = 0;
    for (int first = 0; first < 32; first += lanes) {
        int64_t seen[32][32];
        int of_bank[32] = {}, most = 0;
        for (int lane = first; lane < first + lanes; ++lane)
            for (int i = 0; i < words; ++i) {
                const int64_t word = place(lane) / 4 + i;
                const int bank = word & 31;
                int64_t *const begin = seen[bank], *const end = begin + of_bank[bank];
                if (std::find(begin, end, word) == end)
                    begin[of_bank[bank]++] = word;
                most = std::max(most, of_bank[bank]);
            }
        clocks += most;
    }
    return clocks;
}

// What a warp's tasks cost: issue slots, as they were counted in the compiled code, and clocks of
// shared memory; what threads store to y themselves counts there, too, and is fitted so.
struct Cost {
    double slots = 0, shared = 0;
};

struct Option {
    Tiling tiling;
    Form form;
    bool on_bands; // whether tensor cores multiply
    Cost task;     // of a warp
    int blocks;
    size_t shared; // bytes of a block
    double us;
};

// Whether tensor cores can: rows of x are read by 16 bytes, and y is written by pairs.
inline bool has_bands(const cf_problem &p) {
    return element_bytes(p) == 2 && p.stride_h == 1 && vector_bytes(p) == 16 && p.q % 2 == 0;
}

// Clocks of a quarter's tensor core for a row of the filter: two halves of a step, which take as
// long as whole ones; fitted to h200-depthwise-nchw-first-strips.csv.
constexpr double StepClocks = 12.3;

// What a warp's tasks cost on tensor cores.
inline Cost band_cost(const cf_problem &p, const Tiling &t) {
    const int size = element_bytes(p), pairs = (p.r + 1) / 2;
    const double columns = double(ceil_div(p.q + 8 - BandLead, 8));
    const double tiles = double(ceil_div(std::min(t.rows, t.strip_rows), BandRows));
    const auto reads = [&](int lane) { return int64_t(lane / 16 + lane % 16) * t.w * size; };
    const auto writes = [&](int lane) { return int64_t(lane / 4) * t.q * size + lane % 4 * 4; };
    const double of_column = std::max(2.0 * pairs + 2.0 * p.r + 18, StepClocks * p.r);
    Cost cost;
    cost.slots = 60 + 5.0 * p.r + tiles * (75 + columns * of_column);
    cost.shared =
        2.0 * p.r +
        tiles * columns * (pairs * shared_clocks(16, reads) + 2.0 * shared_clocks(4, writes));
    return cost;
}

inline Cost task_cost(const cf_problem &p, Form form, const Tiling &t) {
    const int size = element_bytes(p), columns = form.columns, vector = form.vector;
    const int stored = t.together * size, stores = columns / t.together;
    const int width = (columns - 1) * p.stride_w + p.s;
    const auto of_lane = [&](int lane, int rows, int row_elements, int row_stride, int elements) {
        const int task = std::min(lane, t.tasks - 1), line = task / t.tiles;
        const int plane = line / t.pieces, piece = line - plane * t.pieces;
        const int64_t row = int64_t(plane) * rows + int64_t(piece) * t.rows * row_stride;
        return (row * row_elements + int64_t(task - line * t.tiles) * elements) * size;
    };
    const auto reads = [&](int lane) {
        return of_lane(lane, t.h, t.w, p.stride_h, columns * p.stride_w);
    };
    const auto writes = [&](int lane) { return of_lane(lane, t.strip_rows, t.q, 1, columns); };
    // A window's loads, as the kernel groups its units.
    const int lead = vector > size ? p.r / 2 : 0, unit = std::min(vector, 4);
    const int before = units_of(lead, unit / size, vector);
    const int end = units_of(width - lead, unit / size, vector);
    int loads = 0, load_clocks = 0, clocks[5] = {}; // of so many units
    for (int i = -before; i < end; ++loads) {
        const int count = loaded_together(i, end, vector);
        if (clocks[count] == 0)
            clocks[count] = shared_clocks(count * unit, reads);
        load_clocks += clocks[count];
        i += count;
    }
    const int rows_ahead = rows_of(p.r, p.stride_h) - 1, steps = t.rows + rows_ahead;
    // At a task's edges rows of sums are left out that it does not have.
    const double products = double(p.r) * p.s * columns * t.rows;
    const double asking = 2.0 * rows_ahead * 3 * p.r;
    const double widening = size == 2 ? width : 0, narrowing = size == 2 ? columns / 2.0 : 0;
    Cost cost;
    cost.slots = 130.8 + (size == 2 ? 2.0 : 1.0) * p.r * p.s + products + asking +
                 steps * (p.stride_h * (loads + widening + 5) + 6.84) +
                 t.rows * (10 + 2.0 * stores + narrowing);
    cost.shared = double(steps) * p.stride_h * load_clocks +
                  double(t.rows) * stores * shared_clocks(stored, writes) + double(p.r) * p.s;
    return cost;
}

// These and what follows but BandSlotClocks are fitted by scripts/fit_strips.py to 1109 times of
// plans of 30 problems (h200-depthwise-forms.csv, h200-depthwise-residency.csv, and those in 16
// bits of h200-depthwise-nchw-first-strips.csv) as far as a multiprocessor had room for the planned
// blocks alone, those of fast plans most. 7 % off (root of the mean square), the plan that it picks
// 2.5 % slower than the fastest in the mean and 10 % at most, the fastest of eight 0.3 %. Bytes of
// the memory's pins that loads and stores beside each other move.
constexpr double StreamShare = 0.928;
// From a load to its bytes; from the last store to the kernel's end is about as long.
constexpr double LatencyClocks = 1012;
// Issue slots: of a strip, by each warp that has tasks there and by each that has none, by the one
// that moves it, and for the filters of 32 of its planes. Clocks of shared memory of those that are
// counted.
constexpr double StripSlots = 264, VisitSlots = 270, MoverSlots = 119, FilterSlots = 19.2,
                 SharedShare = 0.954;
// Of a block's stages so many are filled or emptied at a time, and none computes from those.
constexpr double Filling = 0.53;
// How much of the blocks' stages fills and empties while nothing else goes on, and how much of the
// time that blocks have no strip in the last round the others do not make up for.
constexpr double EndsShare = 0.47, Unbalanced = 0.211;

// Clocks for each of a warp's issue slots, with so many warps to a quarter of a multiprocessor:
// what it waits for by itself, and its turn.
inline double slot_clocks(double warps) { return 1.873 + warps * 0.772; }
// By itself a warp on tensor cores waits for a chain of products, in clocks for each slot.
constexpr double BandSlotClocks = 3.52;

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const Cost &task = option.task;
    const double size = element_bytes(p), area = double(p.h) * p.w;
    const double shared_rows = double(t.row_strips - 1) * std::max(p.r - p.stride_h, 0);
    // Rows that two strips load are in the second-level cache for one of them, mostly.
    const double bytes =
        double(t.planes) * (area + shared_rows * p.w / 3 + double(p.p) * p.q) * size;
    const double bandwidth = StreamShare * d.bytes_per_us;

    const double sets = sets_of(t, option.on_bands);
    // Ends that no bulk copy takes are waited for.
    const bool ends = int64_t(t.strip_rows) * t.set * p.stride_h * p.w * int(size) % 16 != 0;
    const double mover = MoverSlots + double(ceil_div(t.set, 32)) *
                                          (FilterSlots + 2.0 * filter_words(p.r, int(size)));
    // Of the busiest multiprocessor and the busiest block.
    const double strips = double(ceil_div(t.strips, d.sm_count));
    const double of_block = double(ceil_div(t.strips, std::max(option.blocks, 1)));
    const double balance = of_block * option.blocks / std::max(t.strips, 1);
    const double memory = bytes / bandwidth * (1 + (balance - 1) * Unbalanced);
    const double together = std::min(double(option.blocks) / d.sm_count, strips / of_block);
    const double computed = std::min<double>(Warps, sets * (t.stages - Filling));
    const double busy = std::max(together * computed / 4, 0.25);
    const double slot = std::max(slot_clocks(busy), option.on_bands ? BandSlotClocks : 0);
    const double with_tasks = std::min<double>(sets, Warps);
    const double of_warps = with_tasks * StripSlots + (Warps - with_tasks) * VisitSlots;
    const double issue = strips * (sets * task.slots + of_warps + mover) * slot / (4 * busy);
    const double shared = strips * (sets * task.shared * SharedShare + t.stage_bytes / 128.0);
    // A stage's strip is loaded, computed and stored; its stages go on beside each other.
    const double strip = LatencyClocks * (ends ? 2 : 1) +
                         (std::ceil(sets / Warps) * task.slots + StripSlots + mover) * slot;
    const double cycle = strip * std::max(of_block / t.stages, 1.0);
    const double computing = clocks_us(d, std::max({issue, shared, cycle}), FmaClock);
    // Nothing is computed before the first strips have come, nor while the last ones leave.
    const double ends_us =
        clocks_us(d, LatencyClocks, FmaClock) +
        EndsShare * std::min(double(option.blocks) * t.stage_bytes, bytes) / bandwidth;
    return ShortLaunchUs + ends_us + together_us(computing, memory);
}

// With so many planes to a strip and rows to each of them, and tasks of so many rows, or on tensor
// cores: all but what depends on the number of blocks.
inline bool tile(const cf_query &query, Form form, int set, int strip_rows, int rows, bool on_bands,
                 Option &option) {
    const cf_problem &p = query.problem;
    const int size = element_bytes(p);
    option = {};
    // Bytes from a strip's first element of y on are counted in 31 bits.
    if (double(strip_rows) * set * p.q * size > INT32_MAX)
        return false;
    option.form = form, option.on_bands = on_bands;
    Tiling &t = option.tiling;
    const int64_t planes = p.n * p.c, row_strips = ceil_div(p.p, strip_rows);
    const int64_t strips = ceil_div(planes, set) * row_strips;
    const int64_t in_rows =
        row_strips == 1 ? p.h : std::min<int64_t>(int64_t(strip_rows - 1) * p.stride_h + p.r, p.h);
    const int64_t filter_bytes = round_up(int64_t(set) * filter_words(p.r, size) * 4, 16);
    const int64_t output = filter_bytes + round_up(in_rows * set * p.w * size + 15, 16);
    const int64_t gathered =
        stores_directly(p.r, size, form.vector) ? 0 : int64_t(strip_rows) * set * p.q * size + 15;
    const int64_t stage_bytes = output + round_up(gathered, 16);
    const int64_t pieces = ceil_div(strip_rows, rows);
    const int64_t tiles = on_bands ? 1 : ceil_div(p.q, form.columns);
    const int64_t tasks = set * pieces * tiles;
    if (stage_bytes > query.device.shared_per_sm || tasks > INT32_MAX / 2 || strips > INT32_MAX / 2)
        return false;
    t.c = p.c, t.h = p.h, t.w = p.w, t.p = p.p, t.q = p.q;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.planes = int(planes), t.set = set;
    t.strip_rows = strip_rows, t.row_strips = int(row_strips);
    t.rows = rows, t.pieces = int(pieces), t.tiles = int(tiles);
    t.tasks = int(tasks), t.strips = int(strips);
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.evict_first = evicts_first(query);
    t.together = columns_together(p, form);
    t.stage_bytes = uint32_t(stage_bytes), t.filter_bytes = uint32_t(filter_bytes);
    t.output = uint32_t(output);
    t.by_row_strips = Divisor(t.row_strips);
    t.by_tiles = Divisor(t.tiles);
    t.by_pieces = Divisor(t.pieces);
    t.by_channels = Divisor(t.c);
    option.task = on_bands ? band_cost(p, t) : task_cost(p, form, t);
    return true;
}

// With room for so many blocks on a multiprocessor; false where two stages do not fit.
inline bool place(const cf_query &query, int blocks, Option &option) {
    const cf_device &d = query.device;
    Tiling &t = option.tiling;
    const RingRoom room =
        ring_room(d, blocks, StaticShared + ZeroBytes, StaticShared, t.stage_bytes, MaxStages);
    t.stages = room.stages, option.shared = room.shared;
    if (t.stages < 2)
        return false;
    option.blocks = std::min(std::max(t.strips, 1), d.sm_count * blocks);
    option.us = estimate(query, option);
    return true;
}

// So many planes of x and of y are whole pieces of 16 bytes.
inline int whole_planes(const cf_problem &p) {
    const int64_t x_bytes = int64_t(p.h) * p.w * element_bytes(p);
    const int64_t y_bytes = int64_t(p.p) * p.q * element_bytes(p);
    int whole = 1;
    while (x_bytes * whole % 16 != 0 || y_bytes * whole % 16 != 0)
        whole *= 2;
    return whole;
}

// Calls body(set, strip_rows): strips of sets of planes, and of rows of one plane.
template <class Body>
void for_sets(const cf_problem &p, Body body) {
    const int whole = whole_planes(p);
    const int64_t planes = std::max<int64_t>(p.n * p.c, 1);
    std::bitset<MostPlanes + 16> seen;
    const auto with_planes = [&](int set) {
        if (!seen[size_t(set)])
            body(set, p.p);
        seen.set(size_t(set));
    };
    for (int set = 1; set <= std::min<int64_t>(planes, MostPlanes); set += 1 + set / 8) {
        with_planes(set);
        with_planes(int(std::min(round_up(set, whole), planes)));
    }
    for (int row_strips = 2, before = p.p; row_strips <= 64; ++row_strips) {
        const int rows = int(ceil_div(p.p, row_strips));
        if (rows != before)
            body(1, rows);
        before = rows;
    }
}

// Those of a form with at least and at most so many blocks to a multiprocessor.
inline void rank_options(const cf_query &query, Form form, int least, int most,
                         Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    const auto take = [&](Option option, int most) {
        // Where there are few strips more blocks are no others.
        const int needed = int(ceil_div(std::max(option.tiling.strips, 1), query.device.sm_count));
        for (int blocks = std::min(least, needed);
             blocks <= std::min(most, needed) && place(query, blocks, option); ++blocks)
            ranking.meet(option, option.us);
    };
    for_sets(p, [&](int set, int strip_rows) {
        Option option;
        // A strip that leaves warps without a task was slower than is estimated.
        for (int64_t rows = BandRows; has_bands(p); rows *= 2) {
            if (tile(query, form, set, strip_rows, int(rows), true, option) &&
                option.tiling.tasks >= Warps)
                take(option, std::max(most, BandBlocks));
            if (2 * rows > INT32_MAX || rows >= strip_rows)
                break;
        }
        for (int pieces = 1, before = 0; pieces <= 8; ++pieces) {
            const int rows = int(ceil_div(strip_rows, pieces));
            if (rows == before || !tile(query, form, set, strip_rows, rows, false, option))
                continue;
            take(option, most);
            before = rows;
        }
    });
}

// Fewer blocks than half of those that registers leave room for are for rows that are so long that
// they need their shared memory.
inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    for (int part = 1; part <= MostBlocks && ranking.met_none(); part *= 2)
        for_forms(p, [&](Form form) {
            const int most = blocks_of(p.r, form.columns) / part;
            if (most > 0)
                rank_options(query, form, most > 1 ? most / 2 + 1 : 1, most, ranking);
        });
}

} // namespace cf::depthwise_nchw
