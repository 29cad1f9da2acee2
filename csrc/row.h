/* What a handwritten kernel offers: a row of kernels.def. Plain C.
 *
 * A problem becomes a plan once, a filter is packed once, and a launch only enqueues: `plan` is a
 * function of numbers alone and needs no device, `prepare` readies what it chose on the current
 * one, `pack` and `launch` take it and addresses. Functions that enqueue answer 0 or a
 * cudaError_t. */
#ifndef CONVFORGE_ROW_H
#define CONVFORGE_ROW_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a row is asked for a plan of. */
typedef struct cf_query {
    cf_problem problem;
    cf_device device;
    int32_t config; /* index into the row's configs; 0 where it has none */
} cf_query;

#define CF_NOTE_BYTES 160

/* What a plan says to others. What it is made of lies in memory of its row's own, of
 * cf_row::state_bytes. */
typedef struct cf_plan {
    uint64_t workspace_least, workspace_preferred; /* bytes */
    uint64_t packed_bytes; /* of the filter re-arranged; 0 where it is used as it is */
    /* How it is arranged. Depends on filter, configuration and device, not on the number of images:
     * every plan of the row with this id takes the same packed filter. */
    uint64_t filter_layout;
    int32_t filter_in_constant; /* whether it lies in cf_functions::constant_memory */
    double us;                  /* estimated; negative for no opinion */
    char note[CF_NOTE_BYTES];   /* what it is made of, in words: "columns=224 parts=2" */
} cf_plan;

/* Called by a launch of several kernels after each of them was enqueued, to time it. */
typedef void (*cf_stage_fn)(void *user, const char *name);

/* Addresses of one launch, on the plan's device. */
typedef struct cf_args {
    const void *x, *w, *packed;
    void *y;
    const float *bias;
    const void *residual;
    void *workspace;
    uint64_t workspace_bytes;
    void *stream;      /* cudaStream_t */
    cf_stage_fn stage; /* null outside of measurements */
    void *stage_user;
} cf_args;

/* What a row's kernels have to be compiled for. */
typedef enum cf_needs {
    CF_NEEDS_SM80 = 0, /* any chip from sm_80 on */
    CF_NEEDS_SM90 = 1, /* mbarriers, bulk and tensor copies: sm_90 and newer */
    CF_NEEDS_SM90A = 2 /* wgmma, setmaxnreg: sm_90 alone */
} cf_needs;

/* Of a row; those that it has no use for are null. */
typedef struct cf_functions {
    uint64_t state_bytes; /* of a plan's state, which begins at a multiple of CF_STATE_ALIGN */
    /* 1 with a plan, or 0 with the reason in `why`. Plain arithmetic: no call of the runtime. */
    int32_t (*plan)(const cf_query *query, void *state, cf_plan *plan, char *why,
                    uint64_t why_bytes);
    /* Once per plan, in the device's context: loads the kernels, sets their attributes, encodes
     * tensor maps but for their addresses. */
    int32_t (*prepare)(void *state);
    /* Enqueues re-arranging w into `packed`. */
    int32_t (*pack)(const void *state, const void *w, void *packed, void *stream);
    int32_t (*launch)(const void *state, const cf_args *args);
    /* For a row that packs its filter into constant memory: the symbol's address in the current
     * context. Packed filters are parts of it, of CF_CONSTANT_BYTES in all. */
    int32_t (*constant_memory)(void **address);
} cf_functions;

#define CF_STATE_ALIGN 64
#define CF_CONSTANT_BYTES 65536
/* What parts of it begin at multiples of. */
#define CF_CONSTANT_ALIGN 256

typedef struct cf_row {
    const char *name;   /* family_file */
    const char *family; /* folder under csrc/kernels */
    const char *idea;   /* one line */
    const char *source; /* paper or report */
    /* What comes out where a loop of fp32 sums would give something else: infinities, NaN, numbers
     * near the largest; null where nothing does. */
    const char *caveat;
    int32_t needs; /* cf_needs */
    /* Null-terminated, "tile=16"; the first is the default. One that ends in "=any" has the least
     * estimate of all. */
    const char *const *configs;
    cf_functions functions;
} cf_row;

/* A row's symbol: `extern "C" const cf_row CF_ROW(family, file) = {...};`. Programs have symbols of
 * their own, so all of these headers' begin with cf_. */
#define CF_ROW(family, file) cf_row_##family##_##file

/* The rows of kernels.def, in its order; null-terminated. */
const cf_row *const *cf_rows(void);

/* 1 if this build's kernels run on a device of this arch, for a row with these needs, or 0. */
int32_t cf_compiled_for(int32_t needs, int32_t arch);
/* What it was compiled for, in the words of CONVFORGE_ARCHS: "80, 90a, ptx". */
const char *cf_compiled_archs(void);

const char *cf_error_name(int32_t code);
const char *cf_error_text(int32_t code);

#ifdef __cplusplus
}
#endif
#endif
