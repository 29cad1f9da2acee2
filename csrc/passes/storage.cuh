// The types of the elements that a pass reads and writes, among the compiled ones.
#pragma once

#include "core/element.cuh"

namespace cf {

// Calls body with an element of this storage.
template <class Body>
void for_storage(int32_t storage, Body body) {
    switch (storage) {
    case CF_STORE_F32:
        return body(float());
    case CF_STORE_F16:
        return body(__half());
    default:
        return body(__nv_bfloat16());
    }
}

} // namespace cf
