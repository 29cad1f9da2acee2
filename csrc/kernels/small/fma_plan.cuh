// How small_fma tiles a batch for persistent blocks: which outputs a thread computes, which strips
// of images a block streams through shared memory, and how many of them are there together.
//
// A strip is an image or some of its rows. A row tile is all columns of the rows of outputs that
// threads compute below each other; an output tile is a row tile in ThreadChannels output
// channels. Blocks count row tiles and output tiles through all of their strips.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "kernels/small/few_channels.cuh"

#include <algorithm>

namespace cf::small_fma {

constexpr int ThreadChannels = 4;   // output channels of a thread
constexpr int MaxStages = 32;       // as many strips as 32 columns may touch
constexpr int MaxOutputStages = 32; // output tiles
constexpr int MaxFilter = 11;       // rows and columns
constexpr int MaxRows = 1 << 30;    // of an image with its padding: rows are counted in 31 bits
constexpr int StaticShared = 2048;  // bytes that barriers may take
// Tasks, columns and output tiles are counted in 31 bits.
constexpr double MaxColumns = 1 << 30;

// Outputs of a thread in one channel: rows below each other, adjacent columns.
struct ThreadTile {
    int rows, columns;
};

// With one column, under filters of a common height, a vertical stride of 2 has 20 and 8 rows,
// weights in shared memory these, 22, 16 and 7 and no stride of 2, constant ones all but 16 and 7.
// Two columns are for 3 x 3 filters.
constexpr ThreadTile ThreadTiles[] = {{29, 1}, {22, 1}, {20, 1}, {17, 1}, {16, 1},
                                      {15, 1}, {8, 1},  {7, 1},  {7, 2}};
constexpr int ThreadTileCount = sizeof(ThreadTiles) / sizeof(ThreadTiles[0]);

// Filter heights that have all of them. The others have two: columns of 8 rows, and, for a vertical
// stride of 1, of as many as registers allow. Of the others only filters of one row in steps of 1
// have weights in shared memory, beside constant ones.
constexpr bool common_height(int r) { return r == 3 || r == 5 || r == 7; }
constexpr bool shared_height(int r) { return common_height(r) || r == 1; }
constexpr int most_rows(int r) { return r > 8 ? 16 : 20; }

constexpr bool is_compiled(int r, ThreadTile tile, int stride, bool constant) {
    const int rows = tile.rows;
    if (tile.columns == 2)
        return r == 3;
    if (!common_height(r))
        return (constant || (shared_height(r) && stride == 1)) &&
               (rows == 8 || (stride == 1 && rows == most_rows(r)));
    if (rows == 20 || rows == 8)
        return constant || stride == 1;
    return stride == 1 && (rows == 22 || constant == (rows != 16 && rows != 7));
}

// Of a block, producers included: as many as registers allow, and few enough registers that weights
// come to uniform ones. With 3 filter rows and 8 of outputs they do so for a stride of 2 only.
constexpr int warps(int r, ThreadTile tile, int stride, bool constant) {
    const int rows = tile.rows;
    if (tile.columns == 2)
        return 16;
    if (rows == 8 && !common_height(r))
        return 28;
    if (rows > 22 || (rows > 16 && !constant))
        return 12;
    if (rows > 15)
        return r == 3 && rows == 17 ? 18 : 16;
    if (rows > 8)
        return 20;
    return !constant ? 28 : r == 3 && stride == 1 ? 24 : 32;
}

// What a plan chooses from.
struct Option {
    int thread;         // number of a ThreadTile
    int row_tiles;      // of a strip
    int channel_splits; // of the output channels, each of blocks of its own
    bool output_ring;   // output tiles gather in shared memory before they are stored
    bool constant;      // weights come from constant memory, else from shared memory

    ThreadTile tile() const { return ThreadTiles[thread]; }
};

// A problem as the kernel wants it, and how it is tiled. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, k, s, p, q, stride_w, pad_top, pad_left, pad_right;
    int thread_columns;
    int row_columns; // threads' columns of a row: q / thread_columns
    int row_tiles;   // of a strip
    int image_strips;
    int strips;        // of the launch's images
    int strip_columns; // row_tiles x row_columns
    int channel_splits;
    int groups;     // of ThreadChannels output channels in a split
    int rows;       // input rows of a strip
    int stages;     // of the ring that strips go through
    uint32_t pitch; // from row to row in a stage
    uint32_t plane; // from channel to channel
    uint32_t stage_bytes;
    // Bulk copies of a strip, each so many bytes, but not beyond the end of its image or channel.
    int bulk_copies;
    int64_t bulk_bytes, bulk_end;
    // Without them: bytes that one lane copies, and how many such pieces a row and a strip
    // have.
    int piece, row_pieces, pieces;
    int left;          // bytes of a row before the first pixel, behind the zeros of the padding
    int producers;     // warps; none where all of a block's strips are copied before it computes
    int column_blocks; // of 32 columns in a block's strips
    // Of the ring of output tiles; none where threads store their sums themselves. Behind the
    // stages of inputs; each has ThreadChannels planes.
    int output_stages;
    uint32_t output_stage_bytes, output_plane;
    Divisor by_row_columns, by_row_tiles, by_groups, by_column_blocks, by_image_strips, by_stages,
        by_output_stages, by_row_pieces, by_rows;
    // Where the lower half of the address of a thread's first sum in y is less, none of its others
    // carries into the upper half. The last one: among the others it would move them against the
    // vectors that uniform registers are loaded in, which costs up to 4 %.
    uint32_t no_carry;
};

// The packed filter: [group][c][s][r][ThreadChannels].
inline int filter_floats(const cf_problem &p) {
    return int(round_up(p.k, ThreadChannels)) * p.c * p.r * p.s;
}

// Rows of y that are no whole sectors, so that two warps write to one.
inline bool partial_sectors(const cf_problem &p) { return p.q % 8 || int64_t(p.p) * p.q % 8; }

// Fills in how a strip is copied and lies in shared memory; answers its bytes, or 0 where one row
// is more than shared memory. Row tiles may read below the image, and the last strip may have fewer
// rows: sums of what lies there are not stored.
inline int64_t lay_out_strip(const cf_problem &p, const cf_device &device, const Option &option,
                             Tiling &t) {
    const int64_t area = int64_t(p.h) * p.w, image = p.c * area;
    // From strip to strip.
    const int64_t step = int64_t(option.row_tiles) * option.tile().rows * p.stride_h * p.w;
    const bool unpadded = !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    const bool bulk = unpadded && p.align >= 16;
    const bool whole_image = bulk && t.image_strips == 1 && image % 4 == 0;
    const bool whole_planes = bulk && area % 4 == 0 && step % 4 == 0;
    int64_t pitch = int64_t(p.w) * 4, left = 0;
    if (!whole_image && !whole_planes) {
        t.piece = p.align >= 16 && p.w % 4 == 0 ? 16 : 4;
        t.row_pieces = int(pitch / t.piece);
        // Two columns are read in words of 8 or 16 bytes.
        const int word = t.thread_columns == 2 ? 16 : t.piece;
        left = round_up(int64_t(p.pad_left) * 4, word);
        pitch = round_up(left + pitch + int64_t(p.pad_right) * 4, word);
    }
    if (pitch > device.shared_per_block)
        return 0;
    int64_t plane = t.rows * pitch, bytes = p.c * plane;
    if (whole_image) {
        t.bulk_copies = 1;
        t.bulk_bytes = t.bulk_end = image * 4;
        plane = area * 4;
        bytes = (p.c - 1) * plane + std::max<int64_t>(t.rows, p.h) * pitch;
    } else if (whole_planes) {
        t.bulk_copies = p.c;
        t.bulk_bytes = plane = round_up(plane, 16);
        t.bulk_end = area * 4;
        bytes = p.c * plane;
    }
    t.left = int(left);
    t.pitch = uint32_t(pitch), t.plane = uint32_t(plane);
    t.producers = t.bulk_copies ? 1 : 2;
    return round_up(bytes, 128);
}

// Fills in the ring of output tiles; answers its bytes, or -1 where it needs too many stages.
inline int64_t lay_out_outputs(const cf_problem &p, const Option &option, Tiling &t) {
    const int64_t row_tile = int64_t(option.tile().rows) * p.q * 4;
    // A plane begins as far behind a multiple of 16 bytes as its place in y does.
    const int64_t plane = round_up(row_tile + 12, 16);
    t.producers = 2; // they store as well
    // A task writes output tiles of all row tiles that 32 columns may touch, while tasks before it
    // may not have written theirs: with fewer stages each could wait for the other.
    const int64_t least = (ceil_div(31, p.q) + 1) * t.groups;
    // Barriers show one bit, and a stage has two of them: they would mislead a warp that waits for
    // a stage whose last round but two is not stored yet. But then every second output tile of the
    // two rounds before waits as well: in q / 32 tasks each, all of them taken before this one but
    // for one of each group. With so many stages these are more than there are other warps.
    const int others = warps(p.r, option.tile(), p.stride_h, option.constant) - t.producers - 1;
    const int64_t enough = 32 * (others + t.groups) / p.q + 1;
    // A stage's output tiles are all stored by the same warp, since these alternate.
    const int64_t stages = round_up(std::max(least + 2, enough), t.producers);
    if (stages > MaxOutputStages)
        return -1;
    t.output_stages = int(stages);
    t.output_plane = uint32_t(plane);
    t.output_stage_bytes = uint32_t(ThreadChannels * plane);
    return stages * ThreadChannels * plane;
}

// The tiling of an option, without its divisors; false where it does not fit.
inline bool tile(const cf_problem &p, const cf_device &device, const Option &option, Tiling &t) {
    const int rows = option.tile().rows;
    const int64_t image_strips = ceil_div(ceil_div(p.p, rows), option.row_tiles);
    t = {};
    t.c = p.c, t.h = p.h, t.w = p.w, t.k = p.k, t.s = p.s, t.p = p.p, t.q = p.q;
    t.stride_w = p.stride_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left, t.pad_right = p.pad_right;
    const int64_t reach = ((ThreadChannels - 1) * int64_t(p.p) * p.q + int64_t(rows) * p.q) * 4;
    t.no_carry = uint32_t(std::max<int64_t>((int64_t(1) << 32) - reach, 0));
    t.thread_columns = option.tile().columns;
    t.row_columns = p.q / t.thread_columns;
    t.row_tiles = option.row_tiles;
    t.image_strips = int(image_strips);
    t.channel_splits = option.channel_splits;
    t.groups = int(ceil_div(p.k, ThreadChannels)) / t.channel_splits;
    if (double(p.n) * image_strips * t.row_tiles * p.q * t.groups > MaxColumns)
        return false;
    t.strips = int(p.n * image_strips);
    t.strip_columns = t.row_tiles * t.row_columns;
    t.rows = (t.row_tiles * rows - 1) * p.stride_h + p.r;

    const int64_t strip = lay_out_strip(p, device, option, t);
    if (strip == 0)
        return false;
    const int64_t outputs = option.output_ring ? lay_out_outputs(p, option, t) : 0;
    if (outputs < 0)
        return false;
    const int64_t weights = option.constant ? 0 : filter_floats(p) / t.channel_splits * 4;
    const int64_t budget = device.shared_per_block - StaticShared - weights - outputs;
    const int64_t fit = budget / strip;
    const int64_t of_block = ceil_div(t.strips, device.sm_count / t.channel_splits);
    // All strips that 32 columns may touch have to be there together, and one more to be
    // loading.
    const int64_t touched = ceil_div(31, t.strip_columns) + 1;
    if (fit < std::min(std::max<int64_t>(touched, 2), of_block))
        return false;
    if (t.bulk_copies == 0 && !option.output_ring && of_block <= std::min<int64_t>(fit, MaxStages))
        t.producers = 0;
    t.column_blocks = int(ceil_div(of_block * t.strip_columns, 32));
    t.pieces = p.c * t.rows * t.row_pieces;
    t.stage_bytes = uint32_t(strip);
    t.stages = int(std::min({fit, int64_t(MaxStages), of_block}));
    return true;
}

inline void set_divisors(Tiling &t) {
    t.by_row_columns = Divisor(t.row_columns);
    t.by_row_tiles = Divisor(t.row_tiles);
    t.by_groups = Divisor(t.groups);
    t.by_column_blocks = Divisor(t.column_blocks);
    t.by_image_strips = Divisor(t.image_strips);
    t.by_stages = Divisor(t.stages);
    t.by_output_stages = Divisor(std::max(t.output_stages, 1));
    t.by_row_pieces = Divisor(std::max(t.row_pieces, 1));
    t.by_rows = Divisor(t.rows);
}

// The estimate's numbers are fitted to the tilings of h200-small-fma-tilings.txt and -pairs.txt,
// under benches/results/evidence.
constexpr double StreamShare = 0.8675; // of the memory's pins, where blocks stream strips
// Sectors that two warps write cost the memory as much as so many.
constexpr double PartialSectors = 2.5;
// Bytes that the L2 cache gives one multiprocessor in a clock, on whatever chip: of the first
// strip, and at best.
constexpr double FirstBytes = 32, L2Bytes = 34;

// Instructions of a thread for one filter column of an input channel, or for all three columns
// where it has two of outputs.
inline double loop_clocks(const cf_problem &p, const Tiling &t, const Option &option) {
    const ThreadTile thread = option.tile();
    const int s = thread.columns == 2 ? 3 : 1;
    const double window = (thread.rows - 1) * p.stride_h + p.r;
    const double loads = thread.columns == 1 ? window : window * (p.stride_h == 1 ? 3 : 2);
    const double products = double(p.r) * s * ThreadChannels * thread.rows * thread.columns;
    const double clocks = products + loads + p.r * s * (option.constant ? 2 : 4) + 7;
    // A filter beyond the nearest cache of constants gives a weight in 4.5 clocks to one of the
    // four schedulers. Two columns and tasks in the order of groups hide it.
    const bool hidden = thread.columns == 2 && t.producers == 0;
    if (option.constant && !hidden && filter_floats(p) * 4 > 2048)
        return std::max(clocks, 18.0 * p.r * s * ThreadChannels);
    return clocks;
}

// Clocks of the busiest multiprocessor. Each of its four schedulers issues one instruction per
// clock at best; a single warp on one leaves gaps.
inline double estimated_clocks(const cf_problem &p, const cf_device &device, const Tiling &t,
                               const Option &option) {
    const ThreadTile thread = option.tile();
    const double strips = double(ceil_div(t.strips, device.sm_count / t.channel_splits));
    const double loops = double(p.c) * p.s / (thread.columns == 2 ? 3 : 1);
    const double task = loops * loop_clocks(p, t, option) +
                        ThreadChannels * thread.rows * (t.output_stages ? 1.5 : 3) + 200;
    const int consumers = warps(p.r, thread, p.stride_h, option.constant) - t.producers;
    const double passing = strips * consumers * 40 / 4;
    const double strip_tasks = t.strip_columns * t.groups / 32.0;
    const double tasks = strips * strip_tasks;
    const double together =
        std::min({tasks, double(consumers), std::max((t.stages - 0.5) * strip_tasks, 1.0)});
    const double on_each = std::max(together / 4, 1.0);
    const double efficiency = on_each / (on_each + 0.35);
    // Schedulers without a warp, and the last tasks, which not all of them have.
    const double rounds = together < 4 ? tasks / together : tasks / 4 + 0.4;
    // Warps wait for each other's output tiles; weights in vector registers take ports from the
    // products; of two stages only one is there while the slowest warp keeps the other.
    const double products = (std::max(rounds, 1.0) * task + passing) / efficiency *
                            (t.output_stages ? 1.06 : 1) * (option.constant ? 1 : 1.02) *
                            (t.stages == 2 && strips > 2 ? 1.15 : 1);
    const double bytes = 4.0 * t.rows * p.w * p.c; // of x for a strip
    const double outputs =
        4.0 * p.k / t.channel_splits * std::min(t.row_tiles * thread.rows, p.p) * p.q;
    const bool partial = partial_sectors(p) && !t.output_stages;
    const double moved =
        bytes + outputs * (partial ? PartialSectors : 1) + (p.epilogue.residual ? outputs : 0);
    const double memory = strips * moved / (StreamShare * bytes_per_clock(device, FmaClock));
    double first = 1500 + bytes / FirstBytes;
    if (t.bulk_copies == 0) { // barriers are known to all before, and a copy takes instructions
        const double copied = double(t.pieces) * (t.producers ? 1 : t.stages);
        first += 1000 + copied / 32 / (t.producers ? t.producers : consumers) * 60;
    }
    // Each split reads x anew, from the L2 cache.
    const double again = t.channel_splits > 1 ? strips * bytes / L2Bytes : 0;
    return first + std::max(products, memory) + 0.1 * std::min(products, memory) + again;
}

// Whether the tile is compiled for the problem and suits it.
inline bool suits(const cf_problem &p, ThreadTile tile, bool constant) {
    if (!is_compiled(p.r, tile, p.stride_h, constant))
        return false;
    // The word that two columns share begins behind the first one, and is aligned.
    return tile.columns == 1 || (p.s == 3 && p.stride_w == p.stride_h && p.pad_left == 1 &&
                                 p.q % 2 == 0 && p.align >= 8);
}

// Of all options the one with the fewest clocks.
struct Best {
    bool found = false;
    Option option;
    Tiling tiling;
    double clocks = 0;
};

inline Best search(const cf_problem &p, const cf_device &device, bool constant) {
    const int groups = int(ceil_div(p.k, ThreadChannels)), sms = device.sm_count;
    Best best;
    const auto consider = [&](const Option &option) {
        Tiling t;
        if (!tile(p, device, option, t))
            return;
        const double clocks = estimated_clocks(p, device, t, option);
        if (!best.found || clocks < best.clocks)
            best = {true, option, t, clocks};
    };
    for (int thread = 0; thread < ThreadTileCount; ++thread) {
        if (!suits(p, ThreadTiles[thread], constant))
            continue;
        const int64_t all = ceil_div(p.p, ThreadTiles[thread].rows);
        for_strip_heights(all, [&](int row_tiles) {
            const bool few = p.n * ceil_div(all, row_tiles) <= 8 * sms && groups <= sms;
            for (const bool output_ring : {false, true}) {
                if (output_ring && (ThreadTiles[thread].columns > 1 || !partial_sectors(p)))
                    continue;
                consider({thread, row_tiles, 1, output_ring, constant});
                // Blocks that take one group each have more strips, and share them more evenly.
                if (few && groups > 1)
                    consider({thread, row_tiles, groups, output_ring, constant});
            }
        });
    }
    if (best.found)
        set_divisors(best.tiling);
    return best;
}

} // namespace cf::small_fma
