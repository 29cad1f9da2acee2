//! A variant for GPUs whose memory is the host's.

use std::sync::Arc;

use convforge::{
    Device, Problem, Result,
    variant::{Args, Info, Kind, Plan, Prepared, Query, Variant},
};

/// Multiplies by the first weight, and panics where that is NaN.
struct Scale(Info);

pub fn variant() -> Arc<dyn Variant> {
    Arc::new(Scale(Info::new(
        "scale",
        "test",
        "y = w x",
        "tests",
        Kind::Kernel,
    )))
}

// SAFETY: what it readies writes no more than the output.
unsafe impl Variant for Scale {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Ready(query.problem.clone())))
    }
}

struct Ready(Problem);

// SAFETY: as above.
unsafe impl Prepared for Ready {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        let (x, y) = (args.x.cast::<f32>(), args.y.cast::<f32>());
        // SAFETY: there is at least one weight.
        let w = unsafe { *args.w.cast::<f32>() };
        assert!(!w.is_nan(), "on purpose");
        for i in 0..self.0.y_len().min(self.0.x_len()) {
            // SAFETY: input and output are as large as the problem says.
            unsafe { y.add(i).write(w * *x.add(i)) };
        }
        Ok(())
    }
}
