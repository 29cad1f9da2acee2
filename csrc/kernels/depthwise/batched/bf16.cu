// Kernels of depthwise_batched for bf16.
#include "kernels/depthwise/batched_kernel.cuh"

template <>
cf::depthwise_batched::Launched
cf::depthwise_batched::kernel_for<__nv_bfloat16>(const cf_problem &p, const Option &option) {
    return kernel_among<__nv_bfloat16>(p, option);
}
