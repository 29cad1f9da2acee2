// How a block of the family's rows begins where those who ask for copies go ahead of the others.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"
#include "ptx/bar.cuh"
#include "ptx/cluster.cuh"
#include "ptx/grid.cuh"

namespace cf::implicit_gemm {

#if CF_SM90
// Until all of the block's threads have initialised barriers and written what else it begins with:
// who loads has initialised what it needs itself, and does not wait. Then until blocks of the
// cluster that read the same have barriers, too, and what the kernels before wrote is there.
__device__ __forceinline__ void begin(const Tiling &t, int threads, bool waits) {
    publish_barriers();
    __syncwarp(); // a stage's barrier is read by all lanes
    if (cluster_size(t) > 1)
        arrive_at_cluster();
    if (waits)
        wait_at_bar<0>(threads); // counted, as those who arrived may have left
    else
        arrive_at_bar<0>(threads);
    if (t.peer_shift > 0)
        wait_for_arrivals_at_cluster();
    wait_for_kernels_before();
}

// Until the others have barriers where blocks of the cluster share nothing but a sum: those who
// send parts of it need that, and threads that arrived have to wait before they leave.
__device__ __forceinline__ void meet_for_parts(const Tiling &t) {
    if (t.parts > 1 && t.peer_shift == 0)
        wait_for_arrivals_at_cluster();
}

// Until all stages of the blocks that share a sum have been read, where parts come to their place;
// parts.rank(part) are those blocks. By each warp that multiplies.
template <class Parts>
__device__ __forceinline__ void wait_for_places(const Parts &parts, int lane) {
    if (lane < parts.block.tiling.parts)
        arrive_at(parts.block.shared.parts_ready, parts.rank(lane));
    __syncwarp();
    parts.block.shared.parts_ready.wait_for_cluster_writes(0);
}
#endif

} // namespace cf::implicit_gemm
