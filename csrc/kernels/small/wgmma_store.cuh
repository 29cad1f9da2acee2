// How the sums of small_wgmma come to y: the end of the epilogue, the output stage of an image, and
// from there to y.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/small/wgmma_task.cuh"
#include "pipeline/segment.cuh"

namespace cf::small_wgmma {

#if CF_SM90A
// Where a lane's sums belong. Value 4 u + 2 i + e is at position i and in column
// 8 u + 2 (lane % 4) + e, in row j of y.
template <class Element, int R, int N, int Quads>
struct OutputMap {
    static constexpr bool Pairs = Quads == 0; // e is one of two pixels, else of two channels
    static constexpr int Rows = rows_of(R, N);

    float (&value)[Rows][N / 2];
    const LanePositions<Rows, Quads> &positions;
    int64_t image;     // where it begins in y, elements
    int first_channel; // of the lane
    int channels, width, area;

    __device__ __forceinline__ OutputMap(const Tiling &tiling, TaskSums<Element, R, N> &sums,
                                         const LanePositions<Rows, Quads> &positions, int64_t image,
                                         int lane)
        : value(sums.value), positions(positions), image(image),
          first_channel(lane % 4 * (Pairs ? N / 8 : 2)), channels(tiling.k), width(tiling.q),
          area(tiling.p * tiling.q) {}

    __device__ __forceinline__ int channel(int u, int e) const {
        return first_channel + (Pairs ? u : 8 * u + e);
    }
    // Elements from the beginning of the image to the first row of position i.
    __device__ __forceinline__ int offset(int k, int i) const {
        return k * area + positions.tile[i] * Rows * width + positions.column[i];
    }

    // For core/fragment_epilogue.cuh.
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int u = 0; u < N / 8; ++u)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                body(channel(u, e), Constant<2 * Rows>(),
                     [&](int v) -> float & { return value[v / 2][4 * u + v % 2 * 2 + e]; });
    }
    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(Stored *tensor, Body body) {
        each([&](int offset, bool live, float &v) {
            body(Constant<1>(), tensor + image + offset, live, [&](int) -> float & { return v; });
        });
    }
    // Calls body(elements from the image's beginning, whether it exists, value).
    template <class Body>
    __device__ __forceinline__ void each(Body body) const {
#pragma unroll
        for (int u = 0; u < N / 8; ++u)
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int k = channel(u, e), pixel = Pairs ? e : 0;
                    const bool exists = k < channels && positions.column[i] + pixel < width;
                    const int rows = exists ? positions.rows[i] : 0;
                    const int first = offset(k, i) + pixel;
#pragma unroll
                    for (int j = 0; j < Rows; ++j)
                        body(first + j * width, j < rows, value[j][4 * u + 2 * i + e]);
                }
    }

    // The stores into an output stage, where the image begins at `to`: neighbours in a row as
    // words, both columns of a position, or both positions in a column.
    __device__ __forceinline__ void store_words(uint32_t to) const {
#pragma unroll
        for (int u = 0; u < N / 8; ++u)
#pragma unroll
            for (int f = 0; f < 2; ++f) {
                const int i = Pairs ? f : 0, k = channel(u, Pairs ? 0 : f);
                const int rows = k < channels ? positions.rows[i] : 0;
                const uint32_t first = to + offset(k, i) * 2;
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
                    const float *v = &value[j][4 * u + (Pairs ? 2 * f : f)];
                    const float two[2] = {v[0], v[Pairs ? 1 : 2]};
                    store_neighbours<Element>(first + j * width * 2, j < rows, two);
                }
            }
    }
    // Single pixels of an odd area: of two neighbouring channels one has its two pixels in a word.
    __device__ __forceinline__ void store_odd(uint32_t to) const {
        const uint32_t first = to + offset(first_channel, 0) * 2;
        const bool both = positions.column[1] < width;
#pragma unroll
        for (int u = 0; u < N / 8; ++u)
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
                const float *v = &value[j][4 * u];
                const uint32_t of[2] = {pack<Element>(v[0], v[2]), pack<Element>(v[1], v[3])};
                const bool second = (first / 2 + j) % 2;
                const uint32_t word[1] = {second ? of[1] : of[0]};
                const uint32_t apart = second ? of[0] : of[1];
                const uint32_t at_word = first + (j * width + (8 * u + second) * area) * 2;
                const uint32_t at_apart = first + (j * width + (8 * u + !second) * area) * 2;
                const bool row = j < positions.rows[0];
                const bool live = row && channel(u, second) < channels;
                const bool beside = row && channel(u, !second) < channels;
                store_if(live && both, at_word, word);
                store_if(live && !both, at_word, uint16_t(word[0]));
                store_if(beside, at_apart, uint16_t(apart));
                store_if(beside && both, at_apart + 2, uint16_t(apart >> 16));
            }
    }
    __device__ __forceinline__ void store_elements(uint32_t to) const {
        each([&](int offset, bool live, float v) {
            const float one[1] = {v};
            store_neighbours<Element>(to + offset * 2, live, one);
        });
    }
};

// Images from their output stages to y, by one warp.
__device__ __forceinline__ void store_images(const Block &block, char *y, int lane) {
    RingPosition at;
    for (int m = 0; m < block.images; ++m, at.next(block.tiling.out_stages)) {
        const auto begin = reinterpret_cast<uint64_t>(y + block.output(m) * 2);
        block.shared.outputs.wait_full(at);
        store_segment<uint16_t, 16, 32>(begin, uint32_t(block.output_elements() * 2),
                                        block.out_stage(at) + uint32_t(begin & 15), lane);
        wait_for_stores_to_read();
        block.shared.outputs.release(at);
    }
}
#endif

} // namespace cf::small_wgmma
