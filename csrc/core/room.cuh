// How much shared memory a block can have, and how many blocks a multiprocessor has room for.
#pragma once

#include "core/plan.cuh"

#include <algorithm>

namespace cf {

constexpr int SystemShared = 1024; // bytes of each block's that are the system's
constexpr int SharedUnit = 128;    // bytes that a block's are a multiple of

// Bytes that a block can have where a multiprocessor has room for so many blocks.
inline int64_t shared_room(const cf_device &d, int blocks) {
    return std::min<int64_t>(d.shared_per_sm / blocks / SharedUnit * SharedUnit - SystemShared,
                             d.shared_per_block);
}

// A block's ring where a multiprocessor has room for so many blocks and for no more: else blocks of
// the next launch, which may begin early, come wherever room is left, and more of them to some
// multiprocessors than to others.
struct RingRoom {
    int stages;
    size_t shared; // bytes to ask for, more than it needs where further blocks would fit
};
// A block has so many bytes `beside` its ring, of which the kernel itself declares some.
inline RingRoom ring_room(const cf_device &d, int blocks, int64_t beside, int64_t declared,
                          int64_t stage_bytes, int most_stages) {
    const int64_t room = shared_room(d, blocks);
    const int64_t stages = std::min<int64_t>((room - beside) / stage_bytes, most_stages);
    const int64_t least = std::min(room, shared_room(d, blocks + 1) + SharedUnit);
    return {int(stages), size_t(std::max(beside + stages * stage_bytes, least) - declared)};
}

} // namespace cf
