//! What sums of fp32 products on tensor cores lose, on every kind of data that a check has and beyond:
//! the tables of docs/notes/fp32.md, as Markdown.
//!
//! ```sh
//! cargo run -p convforge-check --no-default-features --example split_errors
//! ```

use std::error::Error;

use convforge::{Problem, variant::Arithmetic};
use convforge_check::{
    Bounds, Data, Recipe, Reference, Tensor, Tensors, Verdict, judge,
    split::{Method, products},
};

const PIXELS: usize = 96;
const FILTERS: usize = 24;
const SEED: u64 = 26;

/// Numbers that a check knows, or others.
enum Kind {
    Of(Data),
    /// Of normal ones: what becomes of a number of x and of the filter, by pixel and channel.
    Other(
        &'static str,
        fn(f32, usize, usize) -> f32,
        fn(f32, usize, usize) -> f32,
    ),
}

fn same(value: f32, _: usize, _: usize) -> f32 {
    value
}

/// All pixels but one of the tile, from 1 to 2 times so much below that one.
fn below<const EXPONENT: i32>(value: f32, pixel: usize, _: usize) -> f32 {
    let near_one = f32::from_bits(value.to_bits() & 0x807f_ffff | 1.0f32.to_bits());
    match pixel {
        0 => near_one,
        _ => near_one * 2f32.powi(-EXPONENT),
    }
}

/// Of unequal size without an order.
fn spread<const EXPONENT: i32>(value: f32, pixel: usize, channel: usize) -> f32 {
    let random = pixel
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(channel.wrapping_mul(0x85eb_ca6b));
    let random = (random ^ random >> 15).wrapping_mul(0x2c1b_3c6d) >> 7 & 0xffff;
    value * 2f32.powi(random as i32 % (2 * EXPONENT + 1) - EXPONENT)
}

const KINDS: [Kind; 16] = [
    Kind::Of(Data::Integer),
    Kind::Of(Data::Normal),
    Kind::Of(Data::Positive),
    Kind::Of(Data::Wide),
    Kind::Of(Data::Extreme),
    Kind::Other("ReLU", |x, _, _| x.max(0.0), same),
    Kind::Other("ReLU, weights over 2^10", |x, _, _| x.max(0.0), spread::<5>),
    Kind::Other("both over 2^60", spread::<30>, spread::<30>),
    Kind::Other("x 2^24 below", below::<24>, same),
    Kind::Other("x 2^28 below", below::<28>, same),
    Kind::Other("x 2^29 below", below::<29>, same),
    Kind::Other("x 2^30 below", below::<30>, same),
    Kind::Other(
        "channels 2^24 below, weights 2^24 above",
        |x, _, c| x * 2f32.powi(-24 * (c as i32 & 1)),
        |w, _, c| w * 2f32.powi(24 * (c as i32 & 1)),
    ),
    Kind::Other(
        "x near the largest, small weights",
        |x, _, _| x * 2f32.powi(125),
        |w, _, _| w * 2f32.powi(-60),
    ),
    Kind::Other(
        "x subnormal, large weights",
        |x, _, _| x * 2f32.powi(-130),
        |w, _, _| w * 2f32.powi(60),
    ),
    Kind::Other(
        "both small: sums near 2^-100",
        |x, _, _| x * 2f32.powi(-50),
        |w, _, _| w * 2f32.powi(-50),
    ),
];

impl Kind {
    fn name(&self) -> String {
        match self {
            Kind::Of(data) => data.to_string(),
            Kind::Other(name, ..) => (*name).to_owned(),
        }
    }

    /// Operands, and the data whose bounds hold for them.
    fn operands(&self, problem: &Problem) -> (Tensors, Data) {
        match *self {
            Kind::Of(data) => (Recipe::new(problem, data, SEED).tensors(), data),
            Kind::Other(_, of_x, of_w) => {
                let recipe = Recipe::new(problem, Data::Normal, SEED);
                let k = problem.c();
                let made = |tensor, len: usize, change: fn(f32, usize, usize) -> f32| {
                    let value = |i: usize| change(recipe.value(tensor, i), i / k, i % k);
                    (0..len).map(value).collect()
                };
                let tensors = Tensors {
                    x: made(Tensor::X, problem.x_len(), of_x),
                    w: made(Tensor::W, problem.w_len(), of_w),
                    ..Tensors::default()
                };
                (tensors, Data::Wide)
            }
        }
    }
}

fn judged(problem: &Problem, reference: &Reference, data: Data, y: &[f32]) -> (Verdict, bool) {
    let bounds = Bounds::new(problem, data, Arithmetic::Exact);
    let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_ne_bytes()).collect();
    let verdict = judge(reference, &bytes, &bounds).expect("as long as the problem says");
    let passed = verdict.bad == 0 && verdict.rms() <= bounds.rms_limit(&verdict);
    (verdict, passed)
}

fn main() -> Result<(), Box<dyn Error>> {
    let methods = [
        Method::Tf32 { every: 4 },
        Method::F16 { every: 4 },
        Method::F16 { every: 1 },
    ];
    let lengths: [usize; 7] = [8, 16, 32, 64, 128, 576, 4608];
    print!("| data | terms | {}", Method::Loop);
    for method in methods {
        print!(" | {method}");
    }
    println!(" | loops |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for kind in &KINDS {
        for terms in &lengths {
            let problem: Problem = format!("mb{PIXELS}ic{terms}ih1oc{FILTERS}oh1kh1").parse()?;
            let (tensors, data) = kind.operands(&problem);
            let reference = Reference::new(&problem, &tensors)?;
            let mut guarded = 0;
            print!("| {} | {terms}", kind.name());
            for method in std::iter::once(Method::Loop).chain(methods) {
                let found = products(method, &tensors.x, &tensors.w, *terms, PIXELS);
                let (verdict, passed) = judged(&problem, &reference, data, &found.y);
                let [worst, rms] = [verdict.worst, verdict.rms()].map(|error| error * 1e8);
                print!(
                    " | {worst:.1} ({rms:.2}){}",
                    if passed { "" } else { " **fails**" }
                );
                guarded = found.guarded;
            }
            println!(
                " | {:.0} % |",
                guarded as f64 * 100.0 / (PIXELS * FILTERS) as f64
            );
        }
    }
    Ok(())
}
