//! A call as candle's graph has it: on the CPU or on a GPU, and for inference alone.

use candle_core::{CpuStorage, CudaStorage, CustomOp2, CustomOp3, Layout, Result, Shape};

use crate::{
    cpu,
    op::{NAME, Op},
};

impl CustomOp2 for Op {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = ((x, x_layout), (w, w_layout));
        Ok((cpu::forward(self, x, w)?, self.y_shape()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        w: &CudaStorage,
        w_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (x, w) = ((x, x_layout), (w, w_layout));
        Ok((crate::cuda::forward(self, x, w)?, self.y_shape()))
    }
}

/// The third one is the bias, which is there in f32 already.
impl CustomOp3 for Op {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        CustomOp2::cpu_fwd(self, x, x_layout, w, w_layout)
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        w: &CudaStorage,
        w_layout: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        CustomOp2::cuda_fwd(self, x, x_layout, w, w_layout)
    }
}
