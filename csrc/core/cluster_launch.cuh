// Launches of kernels whose blocks come in clusters.
#pragma once

#include "core/launch.cuh"

namespace cf {

// A kernel, and how many neighbours of its blocks (in x) are a cluster. The grid is a multiple of
// it.
template <class... Parameters>
struct ClusterKernel {
    Kernel<Parameters...> kernel;
    unsigned cluster = 1;

    int32_t prepare() const { return kernel.prepare(); }
    int32_t launch(void *stream, const Parameters &...parameters) const {
        if (cluster == 1)
            return kernel.launch(stream, parameters...);
        cudaLaunchAttribute attributes[2] = {};
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim.x = cluster;
        attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
        attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[1].val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = kernel.grid;
        config.blockDim = kernel.block;
        config.dynamicSmemBytes = kernel.shared;
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = attributes;
        config.numAttrs = kernel.early ? 2 : 1;
        void *arguments[] = {const_cast<void *>(static_cast<const void *>(&parameters))...};
        return checked(cudaLaunchKernelExC(&config, kernel.function, arguments));
    }
};

} // namespace cf
