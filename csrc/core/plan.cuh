// From a row's own functions, which know the type of its plans' state, to those of the table.
#pragma once

#include "core/launch.cuh"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>

namespace cf {

// Says no with a reason: `return no("takes one group; this has %d", p.groups);`
struct Refusal {
    char *why;
    uint64_t bytes;

    __attribute__((format(printf, 2, 3))) bool operator()(const char *format, ...) const {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(why, bytes, format, arguments);
        va_end(arguments);
        return false;
    }
};

// Says what a plan is made of: `tell(plan, "columns=%d parts=%d", columns, parts);` Words of one
// plan add up; what is too long is cut off.
__attribute__((format(printf, 2, 3))) inline void tell(cf_plan &plan, const char *format, ...) {
    const size_t length = strlen(plan.note);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan.note + length, sizeof plan.note - length, format, arguments);
    va_end(arguments);
}

// Of a row whose state is:
//
//     struct State { ... };     // numbers and kernels; copied as bytes
//     bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no);
//     int32_t prepare(State &state);
//     int32_t launch(const State &state, const cf_args &args);
//     int32_t pack(const State &state, const void *w, void *packed, void *stream);
//
// A state with one kernel calls it `kernel`, and cf::prepare_kernel<State> prepares it.
template <class State>
int32_t prepare_kernel(State &state) {
    return state.kernel.prepare();
}

template <class State, bool (*Plan)(const cf_query &, State &, cf_plan &, const Refusal &),
          int32_t (*Prepare)(State &), int32_t (*Launch)(const State &, const cf_args &),
          int32_t (*Pack)(const State &, const void *, void *, void *) = nullptr>
struct Row {
    static_assert(std::is_trivially_copyable_v<State> && std::is_trivially_destructible_v<State>,
                  "a plan is copied as bytes");
    static_assert(alignof(State) <= CF_STATE_ALIGN, "as row.h promises");

    static int32_t plan(const cf_query *query, void *state, cf_plan *plan, char *why,
                        uint64_t bytes) {
        *plan = {};
        plan->us = -1;
        return Plan(*query, *new (state) State(), *plan, Refusal{why, bytes});
    }
    static int32_t prepare(void *state) { return Prepare(*static_cast<State *>(state)); }
    static int32_t pack(const void *state, const void *w, void *packed, void *stream) {
        return Pack(*static_cast<const State *>(state), w, packed, stream);
    }
    static int32_t launch(const void *state, const cf_args *args) {
        return Launch(*static_cast<const State *>(state), *args);
    }
    static constexpr cf_functions functions(int32_t (*constant_memory)(void **) = nullptr) {
        return {sizeof(State), plan, prepare, Pack ? pack : nullptr, launch, constant_memory};
    }
};

} // namespace cf
