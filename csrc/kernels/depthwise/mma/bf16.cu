// Kernels of depthwise_mma for bf16.
#include "kernels/depthwise/mma_kernel.cuh"

template <>
cf::depthwise_mma::Launched cf::depthwise_mma::kernel_for<__nv_bfloat16>(const cf_problem &p,
                                                                         const Option &option) {
    return kernel_among<__nv_bfloat16>(p, option);
}
