// Variants that work through the images of a batch in chunks, so that what they leave in the
// workspace on the way fits it.
#pragma once

#include "core/launch.cuh"

namespace cf {

constexpr uint64_t ChunkBytes = uint64_t(1) << 30; // no chunk gains from more

struct Chunks {
    int64_t images = 0;           // of the batch
    int64_t most = 0;             // of a chunk
    uint64_t bytes_per_image = 0; // of workspace

    Chunks() = default;
    // As many images at a time as ChunkBytes hold, or `limit`.
    Chunks(const cf_problem &p, uint64_t bytes_per_image, int64_t limit = INT64_MAX)
        : images(p.n), bytes_per_image(bytes_per_image) {
        const auto fit = int64_t(ChunkBytes / std::max<uint64_t>(bytes_per_image, 1));
        most = std::max<int64_t>(std::min({fit, limit, images}), 1);
    }

    // One image's at least.
    void workspace(cf_plan &plan) const {
        plan.workspace_least = bytes_per_image;
        plan.workspace_preferred = bytes_per_image * uint64_t(most);
    }

    // body(first, count) answers 0 or an error.
    template <class Body>
    int32_t walk(const cf_args &args, Body body) const {
        const auto fit = int64_t(args.workspace_bytes / std::max<uint64_t>(bytes_per_image, 1));
        const int64_t chunk = std::clamp<int64_t>(fit, 1, most);
        for (int64_t first = 0; first < images; first += chunk)
            if (const int32_t error = body(first, std::min(chunk, images - first)))
                return error;
        return 0;
    }
};

} // namespace cf
