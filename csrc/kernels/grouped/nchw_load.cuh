// How x comes to shared memory in grouped_nchw: rows of channels by bulk copies, as they lie in
// memory, and then with channels beside each other.
#pragma once

#include "kernels/grouped/nchw_plan.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/shared.cuh"

namespace cf::grouped_nchw {

#if CF_SM90
// Some rows of some channels of an image.
struct Strip {
    int n, block;          // of channels
    int channel, channels; // those that exist
    int row, rows;         // of y
    int top;               // of x, above which is padding where it is negative
    int from, count;       // rows that exist
};

// A block's strips. A stage has x, and later y, of a strip.
struct Strips {
    const Tiling &tiling;
    Barrier (&full)[MaxStages];
    uint32_t stages; // in shared memory
    StridedTiles mine;
    int count;

    __device__ __forceinline__ Strip strip(int m) const {
        const int number = mine.tile(m), others = tiling.by_channel_blocks.quotient(number);
        Strip strip;
        strip.n = tiling.by_row_strips.quotient(others);
        strip.block = number - others * tiling.channel_blocks;
        strip.channel = strip.block * tiling.channels;
        strip.channels = min(tiling.channels, tiling.c - strip.channel);
        strip.row = (others - strip.n * tiling.row_strips) * tiling.rows;
        strip.rows = min(tiling.rows, tiling.p - strip.row);
        strip.top = strip.row * tiling.h_step - tiling.pad_top;
        strip.from = 0, strip.count = tiling.h;
        if (!tiling.whole) {
            strip.from = min(max(strip.top, 0), tiling.h);
            strip.count = max(min(strip.top + tiling.in_rows, tiling.h) - strip.from, 0);
        }
        return strip;
    }
    __device__ __forceinline__ uint32_t stage(int at) const {
        return stages + at * tiling.stage_bytes;
    }
    // Where a strip's rows begin in x, and in y.
    template <class Element>
    __device__ __forceinline__ uint64_t x_begin(const Element *x, const Strip &strip) const {
        const int64_t channel = int64_t(strip.n) * tiling.c + strip.channel;
        return reinterpret_cast<uint64_t>(x + (channel * tiling.h + strip.from) * tiling.w);
    }
    template <class Element>
    __device__ __forceinline__ uint64_t y_begin(const Element *y, const Strip &strip) const {
        const int64_t channel = int64_t(strip.n) * tiling.c + strip.channel;
        return reinterpret_cast<uint64_t>(y + (channel * tiling.p + strip.row) * tiling.q);
    }
};

// The bytes from `begin` to `end` of a tensor that lies from `first` to `last`, by one lane: to
// `to`, which is as far behind a multiple of 16 as `begin`, in whole 16 bytes. What these have
// beside the segment comes too, but nothing from beside the tensor. `full` expects an arrival.
template <class Element>
__device__ __forceinline__ void load_in_whole(uint64_t begin, uint64_t end, uint64_t first,
                                              uint64_t last, uint32_t to, Barrier &full) {
    const uint32_t behind = to - uint32_t(begin); // added to an address in the tensor
    const uint64_t copied = max(begin & ~uint64_t(15), (first + 15) & ~uint64_t(15));
    const uint64_t copied_end = min((end + 15) & ~uint64_t(15), last & ~uint64_t(15));
    const auto copy_elements = [&](uint64_t at, uint64_t end) {
        for (; at < end; at += sizeof(Element))
            if constexpr (sizeof(Element) == 4)
                store_shared(behind + uint32_t(at), *reinterpret_cast<const uint32_t *>(at));
            else
                store_shared_u16(behind + uint32_t(at), *reinterpret_cast<const uint16_t *>(at));
    };
    if (copied < copied_end) {
        full.expect(uint32_t(copied_end - copied));
        copy_bulk(behind + uint32_t(copied), reinterpret_cast<const void *>(copied),
                  uint32_t(copied_end - copied), full);
    }
    copy_elements(begin, min(copied, end));
    copy_elements(max(max(copied, copied_end), begin), end);
}

// Strip m, by a warp.
template <class Element>
__device__ __forceinline__ void load_strip(const Strips &strips, const Element *x,
                                           uint64_t elements, int m, int at, int lane) {
    const Tiling &tiling = strips.tiling;
    const Strip strip = strips.strip(m);
    const auto first = reinterpret_cast<uint64_t>(x), last = first + elements * sizeof(Element);
    const uint64_t begin = strips.x_begin(x, strip);
    const uint32_t to = strips.stage(at) + (uint32_t(begin) & 15);
    const uint32_t row_bytes = tiling.w * sizeof(Element);
    const int segments = tiling.whole ? 1 : strip.channels;
    const uint32_t bytes = strip.count * row_bytes * (tiling.whole ? strip.channels : 1);
    publish_to_bulk_copies(); // what was written here before
    __syncwarp();
    for (int i = lane; i < segments; i += 32) {
        const uint64_t from = begin + uint64_t(i) * tiling.x_plane;
        if (bytes > 0)
            load_in_whole<Element>(from, from + bytes, first, last, to + i * tiling.x_pitch,
                                   strips.full[at]);
    }
    strips.full[at].arrive();
}

// Elements of 16 bytes of channels, `pitch` bytes apart, with zeros for those that do not exist.
template <class Element>
__device__ __forceinline__ void load_piece(uint32_t from, uint32_t pitch, int channels,
                                           uint32_t (&words)[4]) {
    constexpr int Each = 4 / sizeof(Element);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint32_t part[Each];
#pragma unroll
        for (int e = 0; e < Each; ++e) {
            part[e] = 0;
            if (i * Each + e < channels) {
                if constexpr (Each == 1)
                    part[e] = load_shared(from);
                else
                    part[e] = load_shared_u16(from);
            }
            from += pitch;
        }
        if constexpr (Each == 1)
            words[i] = part[0];
        else
            words[i] = __byte_perm(part[0], part[Each - 1], 0x5410);
    }
}

// Puts channels of a strip beside each other, with zeros around, by all threads of the block.
template <class Element>
__device__ __forceinline__ void transpose(const Tiling &tiling, const Strip &strip, uint32_t raw,
                                          uint32_t transposed, int thread) {
    constexpr int PieceChannels = PieceBytes / int(sizeof(Element));
    // In registers, or each use reads them anew.
    uint32_t pitch = tiling.x_pitch, piece_bytes = tiling.piece_bytes;
    int w = tiling.w, width = tiling.width, pieces = tiling.pieces;
    int top = strip.top - strip.from, left = tiling.pad_left;
    keep(pitch), keep(piece_bytes), keep(w), keep(width), keep(pieces), keep(top), keep(left);
    keep(transposed);
#pragma unroll 1
    for (int i = thread; i < tiling.pixels; i += Warps * 32) {
        const int row = tiling.by_width.quotient(i);
        const int x_row = row + top, x_column = i - row * width - left;
        const bool live =
            unsigned(x_row) < unsigned(strip.count) && unsigned(x_column) < unsigned(w);
        // Of a pixel outside any will do.
        uint32_t from = raw + (live ? (x_row * w + x_column) * uint32_t(sizeof(Element)) : 0);
        uint32_t to = transposed + i * PieceBytes;
        int channels = strip.channels;
#pragma unroll 1
        for (int piece = 0; piece < pieces; ++piece) {
            uint32_t words[4];
            if (channels >= PieceChannels)
                load_piece<Element>(from, pitch, PieceChannels, words);
            else
                load_piece<Element>(from, pitch, channels, words);
            if (!live)
                words[0] = words[1] = words[2] = words[3] = 0;
            store_shared4(to, words[0], words[1], words[2], words[3]);
            from += pitch * PieceChannels;
            to += piece_bytes;
            channels -= PieceChannels;
        }
    }
}
#endif

} // namespace cf::grouped_nchw
