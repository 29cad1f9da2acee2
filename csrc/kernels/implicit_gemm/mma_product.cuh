// The main loop of implicit_gemm_mma: what a warp multiplies in a step along the sum.
#pragma once

#include "core/element.cuh"
#include "kernels/implicit_gemm/mma_order.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mma.cuh"

namespace cf::implicit_mma {

// A block's tile: output channels and pixels; rows and columns of a warp's part of it; blocks that
// a multiprocessor's registers are for, stages of shared memory.
template <int C, int P, int WarpRows, int WarpColumns, int BlocksOf, int StagesOf>
struct Tile {
    static constexpr int Channels = C, Pixels = P, Rows = WarpRows, Columns = WarpColumns;
    static constexpr int Blocks = BlocksOf, Stages = StagesOf;
    static constexpr int Threads = C * P / (Rows * Columns) * 32;
    static constexpr int StageBytes = (C + P) * StepBytes;
};

template <Product Kind>
struct OperandType {
    using type = __half;
};
template <>
struct OperandType<Bf16> {
    using type = __nv_bfloat16;
};
template <>
struct OperandType<Tf32> {
    using type = float;
};

// What a kernel is compiled for. Neighbours in y are columns of the product: output channels in
// NHWC, pixels in NCHW. With Copied pieces of x are as they lie in memory.
template <class TileOf, class StoredOf, Product ProductOf, bool NchwOf, bool CopiedOf>
struct Shape : TileOf {
    static constexpr bool Nchw = NchwOf, Copied = CopiedOf;
    using Stored = StoredOf;
    using Operand = typename OperandType<ProductOf>::type;
    static constexpr int Per = PieceBytes / int(sizeof(Operand));          // channels of a piece
    static constexpr int Run = run_of(sizeof(Stored)), Together = 4 * Run; // neighbours in y
    // Of a block.
    static constexpr int AllRows = Nchw ? TileOf::Channels : TileOf::Pixels;
    static constexpr int AllColumns = Nchw ? TileOf::Pixels : TileOf::Channels;
    static constexpr int WarpsAcross = AllColumns / TileOf::Columns;
    // Of a warp, as mma.sync has them: 16 rows and 8 columns.
    static constexpr int RowTiles = TileOf::Rows / 16, ColumnTiles = TileOf::Columns / 8;
    // A stage has lines of x, and of the filter behind them.
    static constexpr int FilterAt = TileOf::Pixels * StepBytes;
    static constexpr int RowsAt = Nchw ? FilterAt : 0, ColumnsAt = Nchw ? 0 : FilterAt;
    static_assert(AllRows % TileOf::Rows == 0 && AllColumns % TileOf::Columns == 0,
                  "warps share a tile");
    static_assert(TileOf::Columns % Together == 0, "lanes have whole runs");
    static_assert(TileOf::Channels <= MostFilters, "as the filter is packed");
};

// Where a piece of a line lies in a stage.
__host__ __device__ __forceinline__ constexpr uint32_t place_of(int line, int piece) {
    return line * StepBytes + exchanged_piece(line, piece) * PieceBytes;
}
// From two pieces to the others.
constexpr uint32_t OtherPlace = 2 * PieceBytes;

// The first row and column of a warp in its block's tile.
template <class Shape>
__device__ __forceinline__ int first_row(int warp) {
    return warp / Shape::WarpsAcross * Shape::Rows;
}
template <class Shape>
__device__ __forceinline__ int first_column(int warp) {
    return warp % Shape::WarpsAcross * Shape::Columns;
}

// What a lane reads of a stage by ldmatrix.
template <class Shape>
class Reader {
    static constexpr int RowTiles = Shape::RowTiles, ColumnTiles = Shape::ColumnTiles;
    // Of the first 16 rows or columns and two pieces; of the others.
    uint32_t rows[2], columns[2];

    static __device__ __forceinline__ void places(uint32_t (&at)[2], uint32_t first) {
        at[0] = first, at[1] = first ^ OtherPlace;
        keep(at[0]), keep(at[1]); // or each step works them out anew
    }

  public:
    // Operands of half a step.
    struct Half {
        uint32_t a[RowTiles][4], b[ColumnTiles][2];
    };

    __device__ __forceinline__ Reader(int warp, int lane) {
        // Matrices of rows: 0 to 7, 8 to 15; the same, a piece on.
        places(rows, Shape::RowsAt + place_of(first_row<Shape>(warp) + lane % 16, lane / 16));
        // Of columns: 0 to 7, the same a piece on; 8 to 15.
        places(columns,
               Shape::ColumnsAt +
                   place_of(first_column<Shape>(warp) + lane / 16 * 8 + lane % 8, lane / 8 % 2));
    }
    // Half number `Of` of a step, which lies at `stage`.
    template <int Of>
    __device__ __forceinline__ void read(Half &half, uint32_t stage) const {
#pragma unroll
        for (int i = 0; i < RowTiles; ++i)
            load_matrices(half.a[i], stage + rows[Of] + i * 16 * StepBytes);
#pragma unroll
        for (int j = 0; j < ColumnTiles; j += 2) {
            uint32_t four[4];
            load_matrices(four, stage + columns[Of] + j * 8 * StepBytes);
            half.b[j][0] = four[0], half.b[j][1] = four[1];
            half.b[j + 1][0] = four[2], half.b[j + 1][1] = four[3];
        }
    }
};

template <class Shape>
struct Sums {
    Fragment<typename Shape::Operand, float> tile[Shape::RowTiles][Shape::ColumnTiles];

    __device__ __forceinline__ void add(const typename Reader<Shape>::Half &half) {
#pragma unroll
        for (int i = 0; i < Shape::RowTiles; ++i)
#pragma unroll
            for (int j = 0; j < Shape::ColumnTiles; ++j)
                tile[i][j].add(half.a[i], half.b[j]);
    }
};

} // namespace cf::implicit_mma
