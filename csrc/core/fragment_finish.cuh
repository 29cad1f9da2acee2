// The end of a kernel's unit whose sums are described by a coordinate map (fragment_epilogue.cuh)
// that stores them, too.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"

namespace cf {

// The epilogue, where a problem has one, its activation as told by late_activation, and the stores;
// one branch where there is no epilogue.
template <class Stored, class Map>
__device__ __forceinline__ void finish_and_store(bool has_epilogue, const Finish &finish,
                                                 int activation, int channels, Map map) {
    if (has_epilogue) {
        finish_fragment<Stored>(finish, channels, map);
        if (activation != CF_ACT_NONE)
            map.for_channels([&](int, auto count, auto value) {
#pragma unroll
                for (int i = 0; i < count.value; ++i)
                    value(i) = activate_keeping_nan(activation, value(i));
            });
    }
    map.store();
}

} // namespace cf
