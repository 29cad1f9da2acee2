// The loader of implicit_gemm_nchw: neighbours in rows of channels come through registers, where
// they are turned into pieces of lines: 16 bytes of channels of a pixel. Which batches a warp
// takes, and of which boxes, is implicit_gemm_f32_nchw's too.
#pragma once

#include "core/element.cuh"
#include "kernels/implicit_gemm/nchw_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "ptx/predicated.cuh"

namespace cf::implicit_nchw {

#if CF_SM90
// What a lane loads at a time.
template <class Element, int Vector>
struct Batch {
    static constexpr int Bytes = Vector * int(sizeof(Element)), Words = Bytes < 4 ? 1 : Bytes / 4;
    static constexpr int Channels = PieceChannels<Element>;
    static constexpr int Pieces = pieces_in_flight(Vector, sizeof(Element));
    static constexpr int Turns = LinePieces / Vector / Pieces; // until all of a line are there
    static constexpr int Vectors = 32 / Vector;                // of a warp
    using Load = std::conditional_t<
        Bytes == 16, uint4,
        std::conditional_t<Bytes == 8, uint2, std::conditional_t<Bytes == 4, uint32_t, uint16_t>>>;

    uint32_t words[Pieces][Channels][Words];

    // Of eight lanes, which store together, each has a piece in other banks: of neighbouring
    // vectors the same one, or of the same vector neighbouring ones.
    static __device__ __forceinline__ int vector_of(int lane) {
        return lane / 8 * (8 / Vector) + lane % (8 / Vector);
    }
    static __device__ __forceinline__ int piece_of(int lane) { return lane % 8 / (8 / Vector); }

    __device__ __forceinline__ void set(int piece, int channel, uint32_t v) {
        words[piece][channel][0] = v;
    }
    __device__ __forceinline__ void set(int piece, int channel, const uint2 &v) {
        words[piece][channel][0] = v.x;
        words[piece][channel][Words > 1] = v.y;
    }
    __device__ __forceinline__ void set(int piece, int channel, const uint4 &v) {
        words[piece][channel][0] = v.x;
        words[piece][channel][Words > 1] = v.y;
        words[piece][channel][Words > 2 ? 2 : 0] = v.z;
        words[piece][channel][Words > 3 ? 3 : 0] = v.w;
    }
    // From a vector of the first channel on, `first` being the lane's first piece; of these
    // channels some are there.
    __device__ __forceinline__ void load(const Element *x, int64_t plane, int first, int channels,
                                         bool live) {
#pragma unroll
        for (int piece = 0; piece < Pieces; ++piece) {
            const int channel = (first + piece * Vector) * Channels;
            const Element *from = x + channel * plane;
#pragma unroll
            for (int i = 0; i < Channels; ++i, from += plane)
                set(piece, i,
                    load_if(live && channel + i < channels, reinterpret_cast<const Load *>(from)));
        }
    }
    // Word i of a pixel's 16 bytes.
    __device__ __forceinline__ uint32_t turned(int piece, int pixel, int i) const {
        if constexpr (sizeof(Element) == 4)
            return __float_as_uint(
                Sum<CF_MATH_TF32>::operand(__uint_as_float(words[piece][i][pixel])));
        else
            return __byte_perm(words[piece][2 * i][pixel / 2], words[piece][2 * i + 1][pixel / 2],
                               pixel % 2 ? 0x7632 : 0x5410);
    }
    // To lines of a row that begins at number `line`, of `columns` in all. Where even and odd ones
    // lie apart, they are halves.
    template <bool Halves>
    __device__ __forceinline__ void store(const Planes &planes, uint32_t lines, int line,
                                          int column, int columns, int first) const {
        const int begin = line + column;
#pragma unroll
        for (int pixel = 0; pixel < Vector; ++pixel) {
            const int behind = column + pixel, half = behind & 1;
            const int at = Halves ? line + half * planes.half_lines + (behind >> 1) : begin + pixel;
            const uint32_t to =
                Halves ? lines + at * LineBytes : lines + begin * LineBytes + pixel * LineBytes;
            const bool live =
                unsigned(behind) < unsigned(columns) && (!Halves || half <= planes.last_half);
#pragma unroll
            for (int piece = 0; piece < Pieces; ++piece) {
                const uint32_t v[4] = {turned(piece, pixel, 0), turned(piece, pixel, 1),
                                       turned(piece, pixel, 2), turned(piece, pixel, 3)};
                store_if(live, to + ((first + piece * Vector) ^ (at & 7)) * 16, v);
            }
        }
    }
    __device__ __forceinline__ void store(const Planes &planes, uint32_t lines, int line,
                                          int column, int columns, int first) const {
        if (planes.halves)
            store<true>(planes, lines, line, column, columns, first);
        else
            store<false>(planes, lines, line, column, columns, first);
    }
};

// The batches of a warp, number `worker` of the loaders: they take those of all boxes in turns.
// Where warpgroups have rings of their own, their boxes come in turns, too. A box has so many
// channels.
template <class Block, class Element, int BoxChannels = LineChannels<Element>>
struct Walk {
    const Block &block;
    const Planes &planes;
    const Element *const tensor;
    int batch;   // of the box
    int box = 0; // of the block's
    int m = 0, group, channel, r = 0, s = 0, ring = 0;
    // Of the box: where it begins, which may be outside of x, and what of it is there.
    const Element *x;
    int row, column, images;

    __device__ __forceinline__ Walk(const Block &block, const Planes &planes, const Element *x,
                                    int worker)
        : block(block), planes(planes), tensor(x), batch(worker),
          channel(block.first_block * BoxChannels) {
        begin_box();
        skip_boxes();
    }
    __device__ __forceinline__ bool more() const { return m < block.count; }
    __device__ __forceinline__ void next() {
        batch += planes.loaders;
        skip_boxes();
    }

  private:
    __device__ __forceinline__ void begin_box() {
        const Tiling &t = block.tiling;
        const Place tile = block.place(m, ring);
        group = tile.group;
        x = tensor + (int64_t(tile.n) * planes.c + group * t.group_c + channel) * planes.x_plane;
        row = tile.row * t.stride_h - t.pad_top + r * t.row_offset;
        column = tile.column * t.stride_w - t.pad_left + s * t.column_offset;
        images = t.n - tile.n;
    }
    __device__ __forceinline__ void skip_boxes() {
        const Tiling &t = block.tiling;
        for (; batch >= planes.batches && more(); batch -= planes.batches, ++box) {
            if (++ring < (t.apart ? Warpgroups : 1)) {
                begin_box();
                continue;
            }
            ring = 0;
            if (++s == t.load_columns)
                s = 0, ++r;
            if (r == t.load_rows)
                r = 0, channel += BoxChannels;
            if (channel >= (block.first_block + block.blocks) * BoxChannels) {
                channel = block.first_block * BoxChannels;
                ++m;
            }
            begin_box();
        }
    }
};

// Where a lane's part of a batch lies.
template <class Element, int Vector>
struct Share {
    using Of = Batch<Element, Vector>;
    int line;            // where the row of the box begins
    int column, columns; // of the row, before even and odd ones are put apart, and of all
    int first;           // piece of a line
    int box;

    // Asks for it.
    __device__ __forceinline__ void load(Of &batch, const Walk<Block, Element> &walk, int lane) {
        const Tiling &t = walk.block.tiling;
        const Planes &planes = walk.planes;
        const int vectors = walk.batch / Of::Turns;
        const int vector = vectors * Of::Vectors + Of::vector_of(lane);
        const int rows = planes.by_row_vectors.quotient(vector);
        const int row = t.by_images.quotient(rows), image = rows - row * t.images;
        column = (vector - rows * planes.row_vectors) * Vector - (walk.column & (Vector - 1));
        line = rows * t.pitch;
        columns = vector < planes.vectors ? t.pitch << planes.halves : 0;
        first = walk.batch % Of::Turns * Of::Pieces * Vector + Of::piece_of(lane);
        box = walk.box;
        const int h = walk.row + row * t.stride_h;
        const int w = walk.column + column * (Vector > 1 ? 1 : planes.step);
        const bool inside = columns > 0 && image < walk.images &&
                            unsigned(h) < unsigned(planes.h) && unsigned(w) < unsigned(planes.w);
        batch.load(walk.x + image * planes.x_image + int64_t(h) * planes.w + w, planes.x_plane,
                   first, t.group_c - walk.channel, inside);
    }
};

// The boxes that a warp goes through, in order: each lane waits for each and arrives for each, so
// that nobody is two rounds ahead or behind. Who multiplies publishes to wgmma what is there: a
// fence here would wait for loads that are on their way.
template <class Block>
struct Boxes {
    const Block &block;
    RingPosition at;
    int box = -1, ring = -1;
    bool left = true;

    __device__ __forceinline__ explicit Boxes(const Block &block) : block(block) {}
    __device__ __forceinline__ uint32_t lines() const { return block.pixels(ring, at.stage); }
    __device__ __forceinline__ void enter(int next) {
        while (box < next) {
            leave();
            ++box;
            if (++ring == (block.tiling.apart ? Warpgroups : 1))
                ring = 0, at.next(block.tiling.pixel_stages);
            block.shared.pixels[ring].wait_empty(at);
            left = false;
        }
    }
    __device__ __forceinline__ void leave() {
        if (!left)
            block.shared.pixels[ring].full[at.stage].arrive();
        left = true;
    }
};

// A warp's batches, one of which is on its way while the one before it is stored.
template <class Element, int Vector>
__device__ __forceinline__ void produce_planes(const Block &block, const Planes &planes,
                                               const Element *x, int worker, int lane) {
    const Tiling &t = block.tiling;
    const int all =
        block.count * block.blocks * t.load_rows * t.load_columns * (t.apart ? Warpgroups : 1);
    Walk<Block, Element> walk(block, planes, x, worker);
    Boxes<Block> boxes(block);
    Batch<Element, Vector> batches[2];
    Share<Element, Vector> shares[2];
    const auto load = [&](int i) {
        if (walk.more())
            shares[i].load(batches[i], walk, lane);
    };
    const auto store = [&](int i) {
        boxes.enter(shares[i].box);
        batches[i].store(planes, boxes.lines(), shares[i].line, shares[i].column, shares[i].columns,
                         shares[i].first);
        if (walk.box > boxes.box)
            boxes.leave();
    };
    bool more = walk.more();
    load(0);
    while (more) {
        walk.next();
        more = walk.more();
        load(1);
        store(0);
        if (!more)
            break;
        walk.next();
        more = walk.more();
        load(0);
        store(1);
    }
    boxes.enter(all - 1);
    boxes.leave();
}

// A warp asks for a ring's pixels as they lie: boxes of 64 pixels of 64 channels.
template <class Element>
__device__ __forceinline__ void produce_straight(const Block &block, const CUtensorMap &x, int ring,
                                                 int lane) {
    const Tiling &t = block.tiling;
    PixelRing &pixels = block.shared.pixels[ring];
    RingPosition at;
    for (int m = 0; m < block.count; ++m) {
        const Place tile = block.place(m, ring);
        int channel = tile.group * t.group_c + block.first_block * LineChannels<Element>;
        for (int b = 0; b < block.blocks; ++b, channel += LineChannels<Element>) {
            pixels.wait_empty(at);
            if (lane == 0) {
                Barrier &full = pixels.full[at.stage];
                const uint32_t to = block.pixels(ring, at.stage);
                full.arrive_and_expect(t.pixel_bytes);
                for (uint32_t i = 0; i < t.pixel_bytes / StraightBytes; ++i)
                    copy_box(to + i * StraightBytes, x, tile.column + int(i) * StraightPixels,
                             channel, tile.n, 0, full);
            }
            __syncwarp();
            at.next(t.pixel_stages);
        }
    }
}
#endif

} // namespace cf::implicit_nchw
