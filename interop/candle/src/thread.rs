//! What a thread is asked of its layers: to leave them to candle, to tell which ran.

use std::cell::{Cell, RefCell};

use convforge::{Conv, Problem};

thread_local! {
    static CANDLES: Cell<bool> = const { Cell::new(false) };
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// One call of a layer that convforge computed.
#[derive(Clone, Debug)]
pub struct Call {
    /// The convolution.
    pub problem: Problem,
    /// Who did it: `cpu_gemm`, `implicit_gemm_nhwc:...`.
    pub variant: String,
}

/// Leaves the layers that `body` calls on this thread to candle, as for comparing.
pub fn by_candle<R>(body: impl FnOnce() -> R) -> R {
    let _restored = Restored(CANDLES.replace(true));
    body()
}

/// Puts back what was there, after a panic too.
struct Restored(bool);

impl Drop for Restored {
    fn drop(&mut self) {
        CANDLES.set(self.0);
    }
}

pub(crate) fn is_candles() -> bool {
    CANDLES.get()
}

/// The calls that convforge computed for `body` on this thread, in their order.
pub fn watch<R>(body: impl FnOnce() -> R) -> (R, Vec<Call>) {
    let before = CALLS.replace(Some(Vec::new()));
    let answer = body();
    let calls = CALLS.replace(before);
    (answer, calls.unwrap_or_default())
}

pub(crate) fn tell(conv: &Conv) {
    CALLS.with_borrow_mut(|calls| {
        if let Some(calls) = calls {
            calls.push(Call {
                problem: conv.problem().clone(),
                variant: conv.name(),
            });
        }
    });
}
