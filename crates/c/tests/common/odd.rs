//! A variant that demands and answers what a test wants.

use std::sync::Arc;

use convforge::{
    Conv, Device, Problem, Result,
    variant::{Args, Bytes, Info, Kind, Packing, Plan, Prepared, Query, Variant},
};

type Launch = dyn Fn() -> Result<()> + Send + Sync;

/// On the CPU. What it launches ends as the test says, and computes nothing.
#[derive(Clone)]
pub struct Odd {
    info: Info,
    workspace: usize,
    packing: Option<Packing>,
    launch: Arc<Launch>,
}

impl Odd {
    pub fn new(launch: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Odd {
            info: Info::new("odd", "test", "as told", "tests", Kind::Cpu),
            workspace: 0,
            packing: None,
            launch: Arc::new(launch),
        }
    }

    pub fn workspace(self, workspace: usize) -> Self {
        Odd { workspace, ..self }
    }

    pub fn packing(self, packing: Packing) -> Self {
        let packing = Some(packing);
        Odd { packing, ..self }
    }

    pub fn conv(self, problem: &str) -> Conv {
        let problem: Problem = problem.parse().unwrap();
        Conv::with_variant(&Device::cpu(), &problem, Arc::new(self)).unwrap()
    }
}

// SAFETY: what it readies writes nothing.
unsafe impl Variant for Odd {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(self.clone()))
    }
}

// SAFETY: as above.
unsafe impl Prepared for Odd {
    fn workspace(&self) -> Bytes {
        Bytes {
            least: self.workspace,
            preferred: self.workspace,
        }
    }

    fn packing(&self) -> Option<Packing> {
        self.packing
    }

    unsafe fn launch(&self, _: Args) -> Result<()> {
        (self.launch)()
    }
}
