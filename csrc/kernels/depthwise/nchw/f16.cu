// Kernels of depthwise_nchw for f16.
#include "kernels/depthwise/nchw_kernel.cuh"

template <>
cf::depthwise_nchw::Launched cf::depthwise_nchw::kernel_for<__half>(const cf_problem &p,
                                                                    const Option &option) {
    return kernel_among<__half>(p, option);
}
