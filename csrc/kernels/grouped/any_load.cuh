// The loader of grouped_any: what a tile reads of x, piece by piece, as operands in shared memory.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/grouped/any_product.cuh"
#include "ptx/cp_async.cuh"

namespace cf::grouped_any {

// Where a tile begins.
struct Tile {
    int image, row, column, set, chunk;

    __device__ __forceinline__ Tile(const Tiling &t, int number) {
        const auto digit = [&](const Divisor &by, int base) {
            const int others = by.quotient(number), last = number - others * base;
            number = others;
            return last;
        };
        chunk = digit(t.by_chunk_blocks, t.chunk_blocks) * t.chunks;
        set = digit(t.by_set_blocks, t.set_blocks) * t.sets;
        column = digit(t.by_column_tiles, t.column_tiles) * t.columns;
        row = digit(t.by_row_tiles, t.row_tiles) * t.rows;
        image = number * t.images;
    }
};

// The first row, column and piece of channels of a part of the filter.
struct Part {
    int row, column, piece;

    __device__ __forceinline__ Part(const Tiling &t, int number) {
        const int taps = t.by_piece_parts.quotient(number);
        const int down = t.by_across_parts.quotient(taps);
        piece = (number - taps * t.piece_parts) * t.part_pieces;
        column = (taps - down * t.across.parts) * t.across.taps;
        row = down * t.down.taps;
    }
};

// Positions along an axis: those from `first` on exist in x, and some output needs them.
struct Range {
    int first, count;

    __device__ __forceinline__ Range(const Axis &axis, int begin, int64_t needed) {
        // The first one that does not lie before a place.
        const auto from = [&](int place) {
            return place > begin ? axis.by_step.quotient(place - begin - 1) + 1 : 0;
        };
        first = from(0);
        count = max(int(min(int64_t(from(axis.size)), needed)) - first, 0);
    }
    __device__ __forceinline__ bool has(int i) const {
        return unsigned(i - first) < unsigned(count);
    }
};

// What a tile reads of x for a part of the filter.
struct Window {
    Range rows, columns;
    int images;           // that exist
    int in_set, channels; // channels from the part's first on: of the set, of x
    const char *from;     // may lie outside of x

    __device__ __forceinline__ Window(const Tiling &t, const Tile &tile, const Part &part,
                                      const char *x, int of_images)
        : rows(range(t.down, tile.row, t.rows, part.row)),
          columns(range(t.across, tile.column, t.columns, part.column)),
          images(of_images - tile.image) {
        const int before = part.piece * t.filter.per;
        const int64_t first = int64_t(tile.set) * t.filter.sets.channels + before;
        in_set = t.filter.sets.channels - before;
        channels = int(t.filter.c - first);
        from = x + tile.image * t.image_x + t.down.place(tile.row, part.row) * t.row_x +
               t.across.place(tile.column, part.column) * t.column_x + first * t.channel_x;
    }
    static __device__ __forceinline__ Range range(const Axis &axis, int first, int outputs,
                                                  int tap) {
        return {axis, axis.place(first, tap), axis.positions(min(outputs, axis.outputs - first))};
    }
};

// Reads neighbours of x into v; zeros where `live` is false.
template <int Count, class Stored>
__device__ __forceinline__ void read_neighbours(const Stored *from, bool live, Stored *v) {
    constexpr int Bytes = Count * int(sizeof(Stored));
    using Word = std::conditional_t<
        Bytes == 2, uint16_t,
        std::conditional_t<Bytes == 4, uint32_t, std::conditional_t<Bytes == 8, uint2, uint4>>>;
    const auto *words = reinterpret_cast<const Word *>(from);
#pragma unroll
    for (int i = 0; i < Bytes / int(sizeof(Word)); ++i)
        reinterpret_cast<Word *>(v)[i] = Word(load_if(live, words + i));
}

// Where a column of a tile lies in its row: as far behind another one as in x, or half as far if
// both are even (evens_first).
__device__ __forceinline__ int column_slot(const Tiling &t, int column) {
    return t.even ? column / 2 + column % 2 * t.even : column;
}

// A piece of x: where it is read, and where it goes.
struct PiecePlace {
    const char *from;
    int left;    // channels from the first on that exist; none over an edge
    uint32_t to; // from where the positions begin
};

// A thread's pieces: of a position one after the other, then of the next position.
class Walk {
    const Tiling &t;
    const Window &window;
    const int first_number;
    int position, number;
    // Of the position.
    bool inside;
    const char *from;
    int slot; // among those in shared memory

    __device__ __forceinline__ void begin_position() {
        const int line = t.by_width.quotient(position), column = position - line * t.width;
        const int image = t.by_height.quotient(line), row = line - image * t.height;
        slot = line * t.width + column_slot(t, column);
        inside = window.rows.has(row) && window.columns.has(column) && image < window.images;
        from = window.from + unsigned(row) * t.rows_apart + unsigned(column) * t.columns_apart;
        if (t.images > 1)
            from += image * t.image_x;
    }
    static __device__ __forceinline__ int2 place(const Tiling &t, int thread) {
        const int slow = t.by_staging.quotient(thread);
        const int base = t.channels_last ? t.piece_threads : t.position_threads;
        const int fast = thread - slow * base;
        return t.channels_last ? make_int2(slow, fast) : make_int2(fast, slow);
    }
    __device__ __forceinline__ Walk(const Tiling &t, const Window &window, int2 begin)
        : t(t), window(window), first_number(begin.y), position(begin.x), number(begin.y) {
        // Threads that are left over have nothing.
        if (position >= t.position_threads || number >= min(t.piece_threads, t.all_pieces))
            position = t.positions;
        begin_position();
    }

  public:
    __device__ __forceinline__ Walk(const Tiling &t, const Window &window)
        : Walk(t, window, place(t, threadIdx.x)) {}
    __device__ __forceinline__ bool ended() const { return position >= t.positions; }
    __device__ __forceinline__ PiecePlace piece() const {
        const int set = t.by_part_pieces.quotient(number), piece = number - set * t.part_pieces;
        const int of_set = set * t.filter.sets.channels, of_piece = piece * t.filter.per;
        const bool live = inside && !ended();
        return {from + unsigned(of_set + of_piece) * t.channel_x,
                live ? min(window.in_set, window.channels - of_set) - of_piece : 0,
                uint32_t(slot * t.pitch + number * PieceBytes)};
    }
    __device__ __forceinline__ void next() {
        number += t.piece_threads;
        if (number >= t.all_pieces) {
            number = first_number;
            position += t.position_threads;
            begin_position();
        }
    }
};

// Operands that are as they are stored: whole pieces, or words of 32 bits, are copied without a
// register, all of a thread's together.
template <class Shape>
__device__ __forceinline__ void copy_pieces(const Tiling &t, const Window &window,
                                            uint32_t positions) {
    const bool whole = t.together == Shape::Per;
#pragma unroll 1
    for (Walk walk(t, window); !walk.ended(); walk.next()) {
        const PiecePlace piece = walk.piece();
        const uint32_t to = positions + piece.to;
        if (whole) {
            copy16_async(to, piece.from, piece.left > 0);
        } else if constexpr (sizeof(typename Shape::Operand) == 4) {
#pragma unroll
            for (int i = 0; i < Shape::Per; ++i)
                copy4_async(to + i * 4, piece.from + i * t.channel_x, i < piece.left);
        }
    }
    wait_for_copies();
}

// Through registers, where stored elements become operands, so many with each load.
template <class Shape, int Count>
struct StagedPiece {
    using Stored = typename Shape::Stored;
    using Operand = typename Shape::Operand;
    alignas(16) Stored value[Shape::Per];
    uint32_t to;
    bool live;

    __device__ __forceinline__ void load(const Tiling &t, const PiecePlace &piece, bool exists) {
#pragma unroll
        for (int i = 0; i < Shape::Per; i += Count)
            read_neighbours<Count>(reinterpret_cast<const Stored *>(piece.from + i * t.channel_x),
                                   i < piece.left, value + i);
        to = piece.to;
        live = exists;
    }
    __device__ __forceinline__ uint32_t word(int i) const {
        if constexpr (sizeof(Operand) == 4)
            return __float_as_uint(widen(value[i]));
        else if constexpr (std::is_same_v<Stored, Operand>)
            return reinterpret_cast<const uint32_t *>(value)[i];
        else
            return pack<Operand>(widen(value[2 * i]), widen(value[2 * i + 1]));
    }
    __device__ __forceinline__ void store(uint32_t positions) const {
        if (live)
            store_shared4(positions + to, word(0), word(1), word(2), word(3));
    }
};

// Each thread has some pieces on their way together.
template <class Shape, int Count>
__device__ __forceinline__ void convert_pieces(const Tiling &t, const Window &window,
                                               uint32_t positions) {
    // As registers allow beside the sums.
    constexpr int Together = Shape::Kind == Fp32 ? 2 : 4;
#pragma unroll 1
    for (Walk walk(t, window); !walk.ended();) {
        StagedPiece<Shape, Count> pieces[Together];
#pragma unroll
        for (int i = 0; i < Together; ++i, walk.next())
            pieces[i].load(t, walk.piece(), !walk.ended());
#pragma unroll
        for (int i = 0; i < Together; ++i)
            pieces[i].store(positions);
    }
}

template <class Shape>
__device__ __forceinline__ void stage(const Tiling &t, const Window &window, uint32_t positions) {
    constexpr int Per = Shape::Per;
    using Operand = typename Shape::Operand;
    constexpr bool AsStored = std::is_same_v<typename Shape::Stored, Operand>;
    if (AsStored && (sizeof(Operand) == 4 || t.together == Per))
        return copy_pieces<Shape>(t, window, positions);
    if constexpr (!AsStored || sizeof(Operand) == 2) {
        if (!AsStored && t.together == Per)
            convert_pieces<Shape, Per>(t, window, positions);
        else if (t.together == 2)
            convert_pieces<Shape, 2>(t, window, positions);
        else
            convert_pieces<Shape, 1>(t, window, positions);
    }
}

// The table of pixels: where each begins to read, and where it lies in y behind the tile's first,
// or -1.
__device__ __forceinline__ void list_pixels(const Tiling &t, const Tile &tile, int images,
                                            uint32_t table) {
#pragma unroll 1
    for (int i = threadIdx.x; i < t.all_pixels; i += blockDim.x) {
        const int line = t.by_columns.quotient(i), column = i - line * t.columns;
        const int image = t.by_rows.quotient(line), row = line - image * t.rows;
        const bool live = i < t.pixels && image < images - tile.image &&
                          row < t.down.outputs - tile.row &&
                          column < t.across.outputs - tile.column;
        const int position = (image * t.height + row * t.down.of_output) * t.width +
                             column_slot(t, column * t.across.of_output);
        const int64_t in_y = image * t.image_y + row * t.row_y + column * t.column_y;
        store_shared2(table + i * EntryBytes, live ? position * t.pitch : 0,
                      live ? uint32_t(in_y) : ~0u);
    }
}

// The table of a part's pieces. What the filter has not, and what fills up the last step, meets
// zeros.
__device__ __forceinline__ void list_pieces(const Tiling &t, const Part &part, uint32_t table) {
    const int all = t.down.taps * t.across.taps * t.part_pieces;
#pragma unroll 1
    for (int i = threadIdx.x; i < t.entries; i += blockDim.x) {
        const int tap = t.by_part_pieces.quotient(i), piece = i - tap * t.part_pieces;
        const int r = t.by_taps.quotient(tap), s = tap - r * t.across.taps;
        const int row = part.row + r, column = part.column + s;
        const bool live = i < all && row < t.down.filter && column < t.across.filter &&
                          part.piece + piece < t.filter.sets.pieces;
        const int position = r * t.down.of_tap * t.width + column_slot(t, s * t.across.of_tap);
        const int number =
            (row * t.across.filter + column) * t.filter.sets.pieces + part.piece + piece;
        store_shared2(table + i * EntryBytes, i < all ? position * t.pitch + piece * PieceBytes : 0,
                      live ? number : t.filter.zero_piece());
    }
}

} // namespace cf::grouped_any
