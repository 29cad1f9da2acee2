// Kernels of depthwise_nchw for bf16.
#include "kernels/depthwise/nchw_kernel.cuh"

template <>
cf::depthwise_nchw::Launched cf::depthwise_nchw::kernel_for<__nv_bfloat16>(const cf_problem &p,
                                                                           const Option &option) {
    return kernel_among<__nv_bfloat16>(p, option);
}
