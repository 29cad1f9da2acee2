// The splitter of implicit_gemm_f32_nhwc: 64 channels of a pixel, in f32 two lines of 32, become
// two lines in f16 in the same place, the high parts and the low ones, and a power of two that
// products with them are multiplied by.
#pragma once

#include "kernels/implicit_gemm/f32_nhwc_load.cuh"
#include "kernels/implicit_gemm/f32_split.cuh"
#include "ptx/shared.cuh"

namespace cf::implicit_f32 {

#if CF_SM90
// Lines that a thread has on the way; that a warp does at a time, 8 lanes each; that all do.
constexpr int LinesInFlight = 4, WarpLines = 4, AllLines = WarpLines * Warpgroup / 32;

// Eight channels of a pixel, as a lane has them.
struct Eight {
    float v[8];

    __device__ __forceinline__ float largest() const {
        float most = fabsf(v[0]);
#pragma unroll
        for (int i = 1; i < 8; ++i)
            most = fmaxf(most, fabsf(v[i]));
        return most;
    }
};

// The exponents of all lines that a lane has on the way, together, so that shuffles do not wait for
// each other.
__device__ __forceinline__ void find_exponents(const Eight (&lines)[LinesInFlight],
                                               int (&exponents)[LinesInFlight]) {
    float largest[LinesInFlight];
#pragma unroll
    for (int i = 0; i < LinesInFlight; ++i)
        largest[i] = lines[i].largest();
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2)
#pragma unroll
        for (int i = 0; i < LinesInFlight; ++i)
            largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], lanes));
#pragma unroll
    for (int i = 0; i < LinesInFlight; ++i)
        exponents[i] = exponent_of_line(largest[i]);
}

// What a thread does of a stage: the piece of 16 bytes of every 16th line that is its own in both
// halves.
struct Splitter {
    const Block &block;
    float scales[8]; // of the lane's channels
    int first;       // line
    uint32_t place;  // of the piece in a stage
    int lane;

    __device__ __forceinline__ Splitter(const Block &block, int warp, int lane)
        : block(block), first(warp * WarpLines + lane / 8),
          place(first * LineBytes + ((lane ^ first) & 7) * 16), lane(lane) {}

    // Of a block of channels.
    __device__ __forceinline__ void load_scales(const float *channels, int number) {
        const float4 *from =
            reinterpret_cast<const float4 *>(channels + number * BlockChannels) + lane % 8 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float4 four = __ldg(from + half);
            scales[half * 4] = four.x, scales[half * 4 + 1] = four.y;
            scales[half * 4 + 2] = four.z, scales[half * 4 + 3] = four.w;
        }
    }
    __device__ __forceinline__ void load(uint32_t at, Eight &eight) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint4 raw = load_shared4(at + half * block.tiling.pixel_stage_bytes);
            const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                eight.v[half * 4 + i] = __uint_as_float(words[i]) * scales[half * 4 + i];
        }
    }
    __device__ __forceinline__ void store(uint32_t at, uint32_t factors, int line,
                                          const Eight &eight, int exponent) const {
        const float scale = line_scale(exponent);
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            split_two(eight.v[2 * i], eight.v[2 * i + 1], scale, high[i], low[i]);
        store_shared4(at, high[0], high[1], high[2], high[3]);
        store_shared4(at + block.tiling.pixel_stage_bytes, low[0], low[1], low[2], low[3]);
        // Beside its own, and behind that of the line before.
        const uint32_t factor = __float_as_uint(line_factor(exponent));
        if (lane % 8 == 0)
            store_shared(factors + line * 8, factor);
        if (lane % 8 == 1 && line > 0)
            store_shared(factors + line * 8 - 4, factor);
    }
    // From this line on, whose piece is here; All: none is behind the last one.
    template <bool All>
    __device__ __forceinline__ void split_some(uint32_t at, uint32_t factors, int line,
                                               int lines) const {
        const auto is_there = [&](int i) { return All || line + i * AllLines < lines; };
        Eight eight[LinesInFlight] = {};
        int exponents[LinesInFlight];
#pragma unroll
        for (int i = 0; i < LinesInFlight; ++i)
            if (is_there(i))
                load(at + i * AllLines * LineBytes, eight[i]);
        find_exponents(eight, exponents);
#pragma unroll
        for (int i = 0; i < LinesInFlight; ++i)
            if (is_there(i))
                store(at + i * AllLines * LineBytes, factors, line + i * AllLines, eight[i],
                      exponents[i]);
    }
    __device__ __forceinline__ void split(int ring, int stage) const {
        constexpr int Step = LinesInFlight * AllLines;
        const int lines = int(block.tiling.pixel_bytes / LineBytes);
        const uint32_t factors = block.factors(ring, stage);
        uint32_t at = block.pixels(ring, stage) + place;
        // The same turns for all lanes of a warp.
        int done = first - lane / 8;
        for (; done + (LinesInFlight - 1) * AllLines + WarpLines <= lines;
             done += Step, at += Step * LineBytes)
            split_some<true>(at, factors, done + lane / 8, lines);
        for (; done < lines; done += Step, at += Step * LineBytes)
            split_some<false>(at, factors, done + lane / 8, lines);
    }
};

// Four warps split what comes, in turns of the rings.
__device__ __forceinline__ void split_pixels(const Block &block, const char *filter, int warp,
                                             int lane) {
    const Tiling &t = block.tiling;
    const auto *channels =
        reinterpret_cast<const float *>(filter + block.plan.packed.channels_at());
    Splitter splitter(block, warp, lane);
    RingPosition at;
    for (int m = 0; m < block.count; ++m) {
        const int group = block.place(m, 0, 0).group;
        for (int b = 0; b < block.blocks; ++b) {
            splitter.load_scales(channels, group * t.blocks + block.first_block + b);
            for (int load = 0; load < t.load_rows * t.load_columns; ++load, at.next(t.pixel_stages))
                for (int ring = 0; ring < block.plan.pixel_rings(); ++ring) {
                    block.shared.raw[ring][at.stage].wait(at.parity());
                    splitter.split(ring, at.stage);
                    publish_to_bulk_copies();
                    block.shared.pixels[ring].full[at.stage].arrive();
                }
        }
    }
}
#endif

} // namespace cf::implicit_f32
