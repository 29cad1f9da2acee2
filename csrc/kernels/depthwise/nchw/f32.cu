// Kernels of depthwise_nchw for f32.
#include "kernels/depthwise/nchw_kernel.cuh"

template <>
cf::depthwise_nchw::Launched cf::depthwise_nchw::kernel_for<float>(const cf_problem &p,
                                                                   const Option &option) {
    return kernel_among<float>(p, option);
}
