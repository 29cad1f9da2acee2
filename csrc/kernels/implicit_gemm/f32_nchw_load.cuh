// The loaders of implicit_gemm_f32_nchw. Warps copy neighbours in rows of 64 channels to shared
// memory, each into slots of its own, and split what has come: of each pixel into a line of high
// parts, one of low parts, and the power of two that products with them are multiplied by. Another
// warp asks for weights.
#pragma once

#include "kernels/implicit_gemm/f32_block.cuh"
#include "kernels/implicit_gemm/f32_nchw_tiling.cuh"
#include "kernels/implicit_gemm/f32_split.cuh"
#include "kernels/implicit_gemm/nchw_load.cuh"
#include "ptx/cp_async_bytes.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mbarrier_test.cuh"

namespace cf::implicit_f32 {

#if CF_SM90
using BoxWalk = implicit_nchw::Walk<Block, float, BlockChannels>;

// What a loader knows of a vector of a box, wherever the box lies: where its row begins in it, and
// before even and odd columns are put apart its column; its row of x and its image. Of no vector
// all of it is too large. As 16 bits each in shared memory, where a batch finds it.
struct VectorPlace {
    int line, column, row, image;

    // By a loader, its share.
    static __device__ __forceinline__ void list(const Tiling &t, const Planes &planes,
                                                uint32_t table, int worker, int lane) {
        const int all = planes.batches * (BatchPixels / planes.vector);
        for (int i = worker * 32 + lane; i < all; i += planes.loaders * 32) {
            const int rows = planes.by_row_vectors.quotient(i);
            const int row = t.by_images.quotient(rows), image = rows - row * t.images;
            const int column = (i - rows * planes.row_vectors) * planes.vector;
            const bool there = i < planes.vectors;
            store_shared2(table + i * VectorPlaceBytes,
                          there ? uint32_t(rows * t.pitch) | uint32_t(column) << 16 : ~0u,
                          there ? uint32_t(row * t.stride_h) | uint32_t(image) << 16 : ~0u);
        }
    }
    __device__ __forceinline__ VectorPlace(uint32_t table, int number) {
        const uint2 packed = load_shared2(table + number * VectorPlaceBytes);
        line = int(packed.x & 0xffff), column = int(packed.x >> 16);
        row = int(packed.y & 0xffff), image = int(packed.y >> 16);
    }
};

// A slot has a row of 8 pixels for each channel. Lanes that read together have the same pixels of
// channels 8 apart: their rows are neighbours.
__device__ __forceinline__ uint32_t slot_row(int channel) {
    return uint32_t(channel & 32 | (channel & 7) * 4 | channel >> 3 & 3) * SlotRowBytes;
}

// Asks for a batch: vectors of so many pixels.
template <int Vector>
__device__ __forceinline__ void ask_for_batch(const BoxWalk &walk, uint32_t table, uint32_t slot,
                                              int lane) {
    constexpr int Vectors = BatchPixels / Vector, Together = 32 / Vectors; // channels of a copy
    const Tiling &t = walk.block.tiling;
    const Planes &planes = walk.planes;
    const int number = lane % Vectors, first = lane / Vectors;
    const VectorPlace place(table, walk.batch * Vectors + number);
    const int h = walk.row + place.row;
    const int w = walk.column + (Vector > 1 ? place.column - (walk.column & (Vector - 1))
                                            : place.column * planes.step);
    const bool inside = place.image < walk.images && unsigned(h) < unsigned(planes.h) &&
                        unsigned(w) < unsigned(planes.w);
    const int channels = inside ? t.group_c - walk.channel - first : 0;
    const float *from =
        walk.x + place.image * planes.x_image + int64_t(h) * planes.w + w + first * planes.x_plane;
    const uint32_t to = slot + slot_row(first) + number * Vector * 4;
#pragma unroll
    for (int i = 0; i < BlockChannels; i += Together, from += Together * planes.x_plane) {
        const bool live = i < channels;
        copy_async<Vector * 4>(to + slot_row(i), live ? from : walk.tensor, live);
    }
}

// What a lane has of a batch: of a pixel two pieces of lines, each of 8 channels in the order in
// which the packed filter has them (channel_of); four lanes have a pixel.
struct Sixteen {
    static constexpr int Pieces = 2, Channels = 8;
    float v[Pieces][Channels];

    // What its channels are multiplied by.
    __device__ __forceinline__ void load_scales(const float *scales, int lane) {
        const float *from = scales + lane / BatchPixels * (Pieces * Channels);
#pragma unroll
        for (int i = 0; i < Pieces * Channels; i += 4) {
            const float4 four = load_global_f32x4(from + i);
            v[i / Channels][i % Channels] = four.x, v[i / Channels][i % Channels + 1] = four.y;
            v[i / Channels][i % Channels + 2] = four.z, v[i / Channels][i % Channels + 3] = four.w;
        }
    }
    __device__ __forceinline__ void multiply(uint32_t slot, int lane) {
        const int pixel = lane % BatchPixels, first = lane / BatchPixels * Pieces;
        const uint32_t from = slot + slot_row(first * 4) + pixel * 4;
#pragma unroll
        for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
            for (int i = 0; i < Channels; ++i)
                v[piece][i] *=
                    load_shared_f32(from + slot_row(piece * 4 + i / 4 * FloatChannels + i % 4));
    }
    __device__ __forceinline__ int exponent() const {
        float largest = 0;
#pragma unroll
        for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
            for (int i = 0; i < Channels; ++i)
                largest = fmaxf(largest, fabsf(v[piece][i]));
#pragma unroll
        for (int lanes = BatchPixels; lanes < 32; lanes *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
        return exponent_of_line(largest);
    }
    // The pieces of line `at` of a stage, where it is one.
    __device__ __forceinline__ void store(uint32_t lines, uint32_t behind, int at, bool live,
                                          int exponent, int lane) const {
        const float scale = line_scale(exponent);
        const uint32_t line = lines + at * LineBytes;
#pragma unroll
        for (int piece = 0; piece < Pieces; ++piece) {
            uint32_t high[4], low[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                split_two(v[piece][2 * i], v[piece][2 * i + 1], scale, high[i], low[i]);
            const uint32_t to = line + ((lane / BatchPixels * Pieces + piece) ^ (at & 7)) * 16;
            store_if(live, to, high);
            store_if(live, to + behind, low);
        }
    }
};

// Puts a batch's lines into a box's stage.
template <int Vector>
__device__ __forceinline__ void store_batch(const BoxWalk &walk, uint32_t table,
                                            const Sixteen &some, uint32_t lines, uint32_t factors,
                                            int lane) {
    const Planes &planes = walk.planes;
    const Tiling &t = walk.block.tiling;
    const int pixel = lane % BatchPixels;
    const VectorPlace place(table, (walk.batch * BatchPixels + pixel) / Vector);
    const int column = place.column + pixel % Vector - (walk.column & (Vector - 1));
    const int half = column & planes.halves;
    const int at = place.line + half * planes.half_lines + (column >> planes.halves);
    const bool live = unsigned(column) < unsigned(t.pitch << planes.halves) &&
                      half <= (planes.halves & planes.last_half);
    const int exponent = some.exponent();
    some.store(lines, t.pixel_stage_bytes, at, live, exponent, lane);
    // Beside its own, and behind that of the line before.
    const int neighbour = lane / BatchPixels;
    store_if(live && neighbour < 2 && at >= neighbour, factors + at * 8 - neighbour * 4,
             line_factor(exponent));
}

// A warp's batches, number `worker` of the loaders. Slots are asked for and split in turns. What it
// reads of x comes while others of the block clear what it writes to: wait_for_clear().
template <int Vector, class WaitForClear>
__device__ __forceinline__ void produce_split(const Block &block, const Planes &planes,
                                              const float *x, const char *filter, int worker,
                                              int lane, WaitForClear wait_for_clear) {
    const Tiling &t = block.tiling;
    const auto *scales = reinterpret_cast<const float *>(filter + block.plan.packed.channels_at());
    const uint32_t slots = block.slots() + slots_bytes(worker);
    const uint32_t table = block.slots() + slots_bytes(planes.loaders);
    const int boxes_in_all =
        block.count * block.blocks * t.load_rows * t.load_columns * (t.apart ? Warpgroups : 1);
    BoxWalk ahead(block, planes, x, worker), walk = ahead;
    uint32_t asked = 0, slot = 0; // bytes behind the first slot
    const auto ask = [&] {
        if (ahead.more()) {
            ask_for_batch<Vector>(ahead, table, slots + asked, lane);
            ahead.next();
        }
        end_of_group();
        asked = (asked + SlotBytes) % slots_bytes(1);
    };
#pragma unroll 1
    for (int i = 0; i < Slots - 1; ++i)
        ask();
    wait_for_clear();
    implicit_nchw::Boxes<Block> boxes(block);
#pragma unroll 1
    while (walk.more()) {
        Sixteen some;
        some.load_scales(scales + (walk.group * t.blocks * BlockChannels + walk.channel), lane);
        wait_for_groups<Slots - 2>();
        // All lanes' copies; and all have read the slot before.
        __syncwarp();
        some.multiply(slots + slot, lane);
        ask();
        boxes.enter(walk.box);
        store_batch<Vector>(walk, table, some, boxes.lines(),
                            block.factors(boxes.ring, boxes.at.stage), lane);
        slot = (slot + SlotBytes) % slots_bytes(1);
        walk.next();
        if (walk.box > boxes.box)
            boxes.leave();
    }
    boxes.enter(boxes_in_all - 1);
    boxes.leave();
}

template <class WaitForClear>
__device__ __forceinline__ void produce_split(const Block &block, const Planes &planes,
                                              const float *x, const char *filter, int worker,
                                              int lane, WaitForClear wait_for_clear) {
    if (planes.vector == 4)
        produce_split<4>(block, planes, x, filter, worker, lane, wait_for_clear);
    else if (planes.vector == 2)
        produce_split<2>(block, planes, x, filter, worker, lane, wait_for_clear);
    else
        produce_split<1>(block, planes, x, filter, worker, lane, wait_for_clear);
}

// Nanoseconds that a warp takes nobody's issue slots where no stage was handed back.
constexpr unsigned Nap = 40;

// A warp asks for the weights of all rings: those that are handed back first.
__device__ __forceinline__ void produce_weights_of_all(const Block &block, const char *filter,
                                                       int lane) {
    WeightWalk first(block, filter, 0), second(block, filter, 1);
    const bool two = block.plan.weight_rings() > 1;
    const auto ask = [&](WeightWalk &walk) {
        if (!walk.more() || !is_over(walk.empty(), walk.at.parity() ^ 1))
            return false;
        if (lane == 0)
            walk.ask();
        __syncwarp();
        walk.next();
        return true;
    };
    while (first.more() || (two && second.more())) {
        const bool asked = ask(first);
        if (!(two && ask(second)) && !asked)
            __nanosleep(Nap);
    }
}
#endif

} // namespace cf::implicit_f32
