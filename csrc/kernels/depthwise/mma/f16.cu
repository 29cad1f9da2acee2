// Kernels of depthwise_mma for f16.
#include "kernels/depthwise/mma_kernel.cuh"

template <>
cf::depthwise_mma::Launched cf::depthwise_mma::kernel_for<__half>(const cf_problem &p,
                                                                  const Option &option) {
    return kernel_among<__half>(p, option);
}
