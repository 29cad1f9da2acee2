// Kernels of depthwise_batched for f16.
#include "kernels/depthwise/batched_kernel.cuh"

template <>
cf::depthwise_batched::Launched cf::depthwise_batched::kernel_for<__half>(const cf_problem &p,
                                                                          const Option &option) {
    return kernel_among<__half>(p, option);
}
