/* convforge: 2-D convolutions (forward) on the CPU and on NVIDIA GPUs, from C and C++.
 *
 * A device is opened, a convolution planned on it once, its filter packed once if the plan says so,
 * and then run any number of times. docs/c.md of the repository says how to link;
 * examples/convolve.c beside this header is a whole program.
 *
 * Memory is the caller's: operands, packed filter and, where given, workspace are addresses in the
 * memory of the plan's device, host memory for the CPU. A plan says how many bytes each has.
 * Tensors are contiguous, in the problem's layout (NCHW with a filter of k, c / groups, r, s unless
 * its text says +nhwc), of its storage (f32 unless it says +f16 or +bf16). Addresses are multiples
 * of 16 bytes, or of what the problem promises by +align=; those of workspaces and packed filters
 * of CONVFORGE_ALIGN.
 *
 * Streams. Work is queued on a CUstream (a cudaStream_t) of the device's primary context, the one
 * that the CUDA runtime uses; nothing waits for it but where that is said. Until the stream is past
 * it, operands stay where they are and nobody writes to them. On the CPU a call returns when the
 * work is done.
 *
 * Overlap. Output and workspace overlap nothing; the others may overlap each other.
 *
 * Threads. Every function may be called from any thread. A plan and a device serve any number of
 * threads at once; a workspace one at a time, and a second one is refused with CONVFORGE_BUSY. A
 * workspace on CU_STREAM_PER_THREAD serves the thread that created it.
 *
 * Handles. What has been created is destroyed once, by its own function, in any order: a plan keeps
 * what it needs of its device, a workspace of its plans. A destroyed handle is not used again; most
 * such uses are answered with CONVFORGE_BAD_HANDLE, but that is no promise. Destroying null does
 * nothing.
 *
 * Errors. A call answers CONVFORGE_OK or says by code what kind of thing went wrong;
 * convforge_last_error has it in words, with the remedy. A call that fails has queued nothing,
 * unless it says CONVFORGE_GPU. Nothing is printed, but for what Rust says on standard error of a
 * defect (CONVFORGE_INTERNAL).
 */
#ifndef CONVFORGE_H
#define CONVFORGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the addresses of workspaces and packed filters are multiples of. */
#define CONVFORGE_ALIGN 128

/* The ordinal that stands for the CPU. */
#define CONVFORGE_CPU (-1)

typedef enum convforge_status {
    CONVFORGE_OK = 0,
    /* A null or senseless argument: the text says which. */
    CONVFORGE_BAD_ARGUMENT = 1,
    /* A handle that is null, of another kind or destroyed. */
    CONVFORGE_BAD_HANDLE = 2,
    /* A text that cannot be read: a problem, a pick. */
    CONVFORGE_BAD_TEXT = 3,
    /* A problem whose numbers describe no convolution. */
    CONVFORGE_BAD_PROBLEM = 4,
    /* A variant, configuration or policy that there is not. */
    CONVFORGE_UNKNOWN = 5,
    /* The variant, or every one, cannot do the problem; or it cannot pack into the caller's memory.
     */
    CONVFORGE_UNSUPPORTED = 6,
    /* An operand that is missing, or that the problem has no use for. */
    CONVFORGE_BAD_OPERAND = 7,
    /* An address that is not aligned. */
    CONVFORGE_MISALIGNED = 8,
    /* The memory given for the workspace is smaller than CONVFORGE_WORKSPACE_LEAST. */
    CONVFORGE_WORKSPACE_TOO_SMALL = 9,
    /* A stream or workspace of another device or context; memory for a workspace, a filter to pack
     * or its place that is not the device's. */
    CONVFORGE_WRONG_DEVICE = 10,
    /* A workspace on CU_STREAM_PER_THREAD, used on another thread than the one that created it. */
    CONVFORGE_WRONG_THREAD = 11,
    /* Another thread is using the workspace. */
    CONVFORGE_BUSY = 12,
    /* There is no such GPU, or no driver, or the library was built without CUDA. */
    CONVFORGE_NO_GPU = 13,
    /* A shared library (cuBLAS, cuDNN) is missing, too old, or lacks a function. */
    CONVFORGE_LIBRARY = 14,
    /* A call of the driver or of a library failed, perhaps because of work that was queued earlier.
     */
    CONVFORGE_GPU = 15,
    /* The device's memory ran out. */
    CONVFORGE_OUT_OF_MEMORY = 16,
    /* A defect of convforge. */
    CONVFORGE_INTERNAL = 17
} convforge_status;

/* The CPU or a GPU. */
typedef struct convforge_device convforge_device;
/* A problem with the variant that does it, ready to run. */
typedef struct convforge_plan convforge_plan;
/* Scratch memory and library handles on one stream. */
typedef struct convforge_workspace convforge_workspace;

/* Addresses of a run. Null where the problem or the plan has no use for one. */
typedef struct convforge_operands {
    const void *x; /* input, n x c x h x w */
    const void *w; /* filter, k x c / groups x r x s; also where it is packed */
    void *y;       /* output, n x k x p x q, pooled if the problem pools */
    const void
        *packed; /* the filter as convforge_pack left it, if CONVFORGE_PACKED is not 0 bytes */
    const float *bias;    /* k, for a problem with +bias */
    const void *residual; /* n x k x p x q before pooling, for a problem with +residual */
} convforge_operands;

/* What convforge_plan_bytes tells of. 0 bytes of what a plan has no use for. */
typedef enum convforge_what {
    CONVFORGE_X = 0,
    CONVFORGE_W = 1,
    CONVFORGE_Y = 2,
    CONVFORGE_BIAS = 3,
    CONVFORGE_RESIDUAL = 4,
    CONVFORGE_PACKED = 5,
    /* Scratch memory that a run works with, and what it gains nothing beyond. */
    CONVFORGE_WORKSPACE_LEAST = 6,
    CONVFORGE_WORKSPACE = 7
} convforge_what;

/* The version of the library, as "0.1.0"; the text stays. */
const char *convforge_version(void);

/* What went wrong in this thread's last call that failed, in words; "" where none has. The text
 * stays until the thread's next call that fails. `status`, if not null, gets its code. */
const char *convforge_last_error(convforge_status *status);

/* Opens the GPU with this number, from 0, or the CPU (CONVFORGE_CPU). Like every function with an
 * `out`, it leaves null there where it fails. */
convforge_status convforge_device_open(int ordinal, convforge_device **out);
convforge_status convforge_device_close(convforge_device *device);

/* Plans a problem, as "mb64ic64ih56oc64oh56kh3ph1+f16+nhwc+bias+relu". `pick` is how its variant is
 * found: null for the default, "auto", "tuned:FOLDER", "rule", "kernels", "policy:NAME" or a
 * variant's name. Kernels are loaded here; nothing is searched by time. */
convforge_status convforge_plan_create(const convforge_device *device, const char *problem,
                                       const char *pick, convforge_plan **out);
convforge_status convforge_plan_destroy(convforge_plan *plan);

/* The variant with its configuration, as "fused_shared:tile=24", and how and why it was picked. The
 * texts stay as long as the plan. Null where the handle is none. */
const char *convforge_plan_name(const convforge_plan *plan);
const char *convforge_plan_reason(const convforge_plan *plan);

/* How many bytes one of convforge_what has. */
convforge_status convforge_plan_bytes(const convforge_plan *plan, int what, size_t *bytes);

/* A workspace for runs on `stream`, which outlives it: a CUstream, of which null is the legacy
 * default one, however the caller was compiled. On the CPU it is null.
 *
 * `memory` has `bytes` bytes that nobody else uses until the workspace is destroyed and the stream
 * is past its work. If null, with 0 bytes, the library allocates what it needs, and may wait for
 * the stream. */
convforge_status convforge_workspace_create(const convforge_plan *plan, void *stream, void *memory,
                                            size_t bytes, convforge_workspace **out);

/* Readies it for one more plan of the same device. Its own memory may move: no graph that was
 * captured with it is launched after that. */
convforge_status convforge_workspace_reserve(convforge_workspace *workspace,
                                             const convforge_plan *plan);

/* Waits for the device where it frees memory or library handles. */
convforge_status convforge_workspace_destroy(convforge_workspace *workspace);

/* Queues re-arranging the filter `w` into `packed`, CONVFORGE_PACKED bytes of the caller's, on the
 * workspace's stream. Once per filter; runs on other streams have to wait for it. Nothing to do for
 * a plan that packs nothing. CONVFORGE_UNSUPPORTED for configurations that keep filters in constant
 * memory. */
convforge_status convforge_pack(const convforge_plan *plan, const convforge_workspace *workspace,
                                const void *w, void *packed);

/* Queues y = epilogue(conv(x, w)) on the workspace's stream. It allocates nothing and waits for
 * nothing, and can be captured in a CUDA graph. */
convforge_status convforge_run(const convforge_plan *plan, convforge_workspace *workspace,
                               const convforge_operands *operands);

#ifdef __cplusplus
}
#endif

#endif
