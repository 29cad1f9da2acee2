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

// Bytes to ask for by a block that needs so many beside what its kernel declares, which is so much
// at most, so that a multiprocessor has room for so many blocks and for no more: else blocks of the
// next launch, which may begin early, come wherever room is left, and more of them to some
// multiprocessors than to others.
inline size_t exact_room(const cf_device &d, int blocks, int64_t needed, int64_t declared) {
    const int64_t room = shared_room(d, blocks) - declared;
    return size_t(std::max(needed, std::min(room, shared_room(d, blocks + 1) + SharedUnit)));
}

// The same for a launch of so many blocks. Where each multiprocessor has as many of them, and has
// room for as many again, that is left: the whole next launch fits there.
inline size_t launch_room(const cf_device &d, int blocks, int64_t needed, int64_t declared) {
    const int of_sm = int(ceil_div(blocks, d.sm_count));
    const bool twice = blocks % d.sm_count == 0 && needed + declared <= shared_room(d, 2 * of_sm);
    return exact_room(d, twice ? 2 * of_sm : of_sm, needed, declared);
}

// A block's ring where a multiprocessor has room for so many blocks and for no more.
struct RingRoom {
    int stages;
    size_t shared; // bytes to ask for
};
// A block has so many bytes `beside` its ring, of which the kernel itself declares some.
inline RingRoom ring_room(const cf_device &d, int blocks, int64_t beside, int64_t declared,
                          int64_t stage_bytes, int most_stages) {
    const int64_t room = shared_room(d, blocks) - beside;
    const int64_t stages = std::min<int64_t>(room / stage_bytes, most_stages);
    const int64_t needed = beside - declared + stages * stage_bytes;
    return {int(stages), exact_room(d, blocks, needed, declared)};
}

} // namespace cf
