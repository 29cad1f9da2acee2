//! The numbers that a check feeds to a convolution, made from a kind of data and a seed.
//!
//! Every element is a function of the seed, the tensor and its index alone, so tensors are made in
//! parallel and any element can be made again by itself. Only integer operations, powers of two and
//! correctly rounded conversions are used: the same seed gives the same bits on every machine, and in
//! csrc/recipe.cuh, which makes large tensors on the GPU.

use convforge::{Activation, Device, Error, Layout, Math, Problem, Storage};
use half::{bf16, f16};
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use crate::ffi;
use crate::{
    Data,
    extreme::Exponents,
    reference::{Tensors, round_stored},
    rng::mix,
    whole::{Whole, signed},
};

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    /// Input.
    X,
    /// Filter.
    W,
    /// Bias.
    Bias,
    /// Residual.
    Residual,
}

/// How the operands of one problem are made from a kind of data and a seed.
#[derive(Clone, Debug)]
pub struct Recipe {
    data: Data,
    seed: u64,
    storage: Storage,
    lens: [usize; 4],
    places: Places,
    whole: Whole,
    /// Wide data: exponents lie in -e..e.
    exponents: u64,
    extreme: Exponents,
    /// What each tensor is multiplied by at last, plus or minus a power of two.
    factors: [f32; 4],
    /// An activation makes zeros of what is negative.
    clips: bool,
}

/// Exponent of the least normal f16, without its sign.
const F16_LEAST: u32 = 14;

/// The least f16 above zero.
const F16_UNIT: f32 = 1.0 / 16_777_216.0;

/// Largest magnitude of a bias or residual among whole numbers.
const ADDED: u64 = 3;

impl Recipe {
    /// Settles the ranges.
    pub fn new(problem: &Problem, data: Data, seed: u64) -> Self {
        let k = problem.reduction() as u64;
        let scale = f64::from(problem.epilogue().scale.abs());
        let narrow = problem.storage() == Storage::F16 || problem.math() == Math::F16Acc;

        // What the accumulator counts exactly; outputs stay under the 65504 of an f16.
        let exact: f64 = if problem.math() == Math::F16Acc {
            2048.0
        } else {
            16_777_216.0
        };
        let outputs: f64 = if narrow { 60_000.0 } else { f64::INFINITY };
        let whole = Whole::new(problem, seed, exact, outputs);

        let room = if narrow {
            32_768.0 / (k as f64 * scale.max(1.0))
        } else {
            f64::INFINITY
        };
        // Operands that are f16 stay normal, whatever is divided off below: tensor cores seem to
        // align a product by its operands' exponents, and the bounds do not count the bits that a
        // subnormal one would lose (docs/notes/checking.md).
        let f16 = narrow || problem.math() == Math::F16;
        let widest = if f16 { 5 } else { 10 };
        let exponents = (1..=widest)
            .rev()
            .find(|e| 4f64.powi(*e) <= room)
            .unwrap_or(1);

        // What |sum| is about, to bring it down to a few units; exact, as it is a power of two.
        let typical = match data {
            Data::Integer => whole.typical,
            // Far from where anything saturates; and exponents of its own.
            Data::Subnormal | Data::Extreme => 0.0,
            Data::Normal => 1.3 * (k as f64).sqrt(),
            Data::Positive => k as f64 / 4.0,
            Data::Wide => 0.3 * 4f64.powi(exponents) * (k as f64).sqrt(),
        };
        let saturates = matches!(
            problem.epilogue().activation,
            Activation::Relu6 | Activation::Tanh | Activation::Sigmoid
        );
        let down = match data {
            _ if saturates => ((typical * scale / 3.0) as u64).max(1).ilog2(),
            // Below what f16 overflows at; other data has its ranges from `room`, or cancels.
            Data::Positive if narrow => {
                // Sums in f16 are not yet scaled.
                let most = if problem.math() == Math::F16Acc {
                    scale.max(1.0)
                } else {
                    scale
                };
                ((typical * most / 8192.0) as u64).max(1).ilog2()
            }
            _ => 0,
        };
        let down = down.min(if f16 {
            F16_LEAST - exponents as u32
        } else {
            20
        });
        let [x_factor, w_factor] = match (data, problem.storage()) {
            (Data::Subnormal, Storage::F32) => [F16_UNIT, F16_UNIT],
            // An f16 output cannot hold the square: input or filter, as seed and filter have it.
            (Data::Subnormal, _) if mix(seed ^ mix(problem.w_len() as u64)) & 1 == 0 => {
                [F16_UNIT, 1.0]
            }
            (Data::Subnormal, _) => [1.0, F16_UNIT],
            // The filter is divided so that sums lie where a saturating activation is not flat.
            _ => [1.0, 2f32.powi(-(down as i32))],
        };
        // Bias and residual in the unit of the sums; other data has them as they come.
        let added = match data {
            Data::Subnormal => x_factor * w_factor,
            _ => 1.0,
        };
        // A ReLU leaves what would be positive.
        let sign = problem.epilogue().scale.signum();

        Recipe {
            data,
            seed,
            storage: problem.storage(),
            lens: [
                problem.x_len(),
                problem.w_len(),
                problem.bias_len(),
                problem.residual_len(),
            ],
            places: Places::new(problem),
            whole,
            extreme: Exponents::new(problem, seed),
            exponents: exponents as u64,
            factors: [x_factor, sign * w_factor, added, added],
            clips: matches!(
                problem.epilogue().activation,
                Activation::Relu | Activation::Relu6
            ),
        }
    }

    /// What its random numbers come from.
    #[cfg(feature = "cuda")]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// One element, as it is stored.
    pub fn value(&self, tensor: Tensor, index: usize) -> f32 {
        let stream = self.stream(tensor);
        let hash = mix(stream.wrapping_add(index as u64));
        let value = match (self.data, tensor) {
            (Data::Integer | Data::Subnormal, tensor) => match tensor {
                Tensor::X => {
                    self.whole
                        .value(0, self.places.of_x(index)[0] % self.places.channels, hash)
                }
                Tensor::W if !self.kept(stream, index) => 0.0,
                Tensor::W => {
                    self.whole
                        .value(1, self.places.of_w(index)[0] % self.places.channels, hash)
                }
                Tensor::Bias | Tensor::Residual => signed(hash, (hash >> 8) % ADDED + 1),
            },
            // Where there are few channels, all of them could be zeros otherwise.
            (_, Tensor::Bias) if self.clips && index == 0 => 1.0,
            (Data::Normal, _) | (Data::Extreme, Tensor::Bias | Tensor::Residual) => {
                let again = mix(hash);
                let halves = [
                    hash >> 32,
                    hash & 0xffff_ffff,
                    again >> 32,
                    again & 0xffff_ffff,
                ];
                let sum = halves.iter().sum::<u64>() as i64 - 2 * 0xffff_ffff;
                sum as f32 * 2f32.powi(-31)
            }
            (Data::Positive, _) => ((hash >> 40) + 1) as f32 * 2f32.powi(-24),
            (Data::Wide, _) => {
                let exponent = (hash >> 40) % (2 * self.exponents);
                real(hash, exponent as i32 - self.exponents as i32)
            }
            (Data::Extreme, Tensor::X) => {
                let [channel, pixel] = self.places.of_x(index);
                real(hash, self.extreme.of_x(channel, pixel))
            }
            (Data::Extreme, Tensor::W) => {
                let [channel, filter] = self.places.of_w(index);
                real(hash, self.extreme.of_w(channel, filter))
            }
        };
        let value = value * self.factors[tensor as usize];
        round_stored(self.storage(tensor), value)
    }

    /// The recipe of one tensor in C.
    #[cfg(feature = "cuda")]
    pub(crate) fn in_c(&self, tensor: Tensor) -> ffi::cf_recipe {
        let (places, whole, extreme) = (&self.places, &self.whole, &self.extreme);
        let fine = whole.fine;
        ffi::cf_recipe {
            data: match self.data {
                Data::Integer | Data::Subnormal => ffi::CF_DATA_WHOLE,
                Data::Normal => ffi::CF_DATA_NORMAL,
                Data::Positive => ffi::CF_DATA_POSITIVE,
                Data::Wide => ffi::CF_DATA_WIDE,
                Data::Extreme => ffi::CF_DATA_EXTREME,
            } as i32,
            tensor: tensor as i32,
            storage: convforge::kernels::storage(self.storage(tensor)),
            clips: self.clips.into(),
            factor: self.factors[tensor as usize],
            stream: self.stream(tensor),
            len: self.lens[tensor as usize] as u64,
            between: places.between.map(|n| n as u64),
            all: places.all as u64,
            channels: places.channels as u64,
            filters: places.filters as u64,
            row: places.row as u64,
            largest: whole.largest,
            added: ADDED,
            block: whole.block as u64,
            // Of no channel that there is.
            period: fine.map_or(1, |fine| fine.period as u64),
            swap: fine.map_or(2, |fine| fine.swap as u64),
            half: fine.map_or(2, |fine| fine.half),
            partner: fine.map_or(1, |fine| fine.partner),
            wide: self.exponents as i32,
            extreme: extreme.seed,
            exponents: extreme.channels,
            first: extreme.first,
            product: extreme.product,
            others: extreme.others,
        }
    }

    /// What all random numbers of a tensor come from.
    fn stream(&self, tensor: Tensor) -> u64 {
        mix(self.seed ^ mix(tensor as u64 + 1))
    }

    /// Whether a weight is the one of its block that is not zero.
    fn kept(&self, stream: u64, index: usize) -> bool {
        let (size, row) = (self.whole.block, self.places.row);
        let (filter, tap) = (index / row, index % row);
        let block = mix(stream ^ mix(filter as u64)).wrapping_add((tap / size) as u64);
        mix(block) as usize % size == tap % size
    }

    /// How a tensor is stored.
    fn storage(&self, tensor: Tensor) -> Storage {
        match tensor {
            Tensor::Bias => Storage::F32,
            _ => self.storage,
        }
    }

    /// Bytes of a tensor.
    pub(crate) fn byte_len(&self, tensor: Tensor) -> usize {
        self.lens[tensor as usize] * self.storage(tensor).bytes()
    }

    /// Bytes of all operands, widened to f32.
    pub(crate) fn widened_bytes(&self) -> usize {
        self.lens.iter().sum::<usize>() * size_of::<f32>()
    }

    /// That the host has so many bytes: [`bytes`](Self::bytes) and [`tensors`](Self::tensors) would
    /// end the program where it has not.
    pub(crate) fn has_room(bytes: usize) -> Result<(), Error> {
        let found = Vec::<u8>::new().try_reserve_exact(bytes);
        found.map_err(|_| Error::OutOfMemory {
            device: Device::cpu().to_string(),
            asked: bytes,
            free: 0,
            total: 0,
        })
    }

    /// A whole tensor as the bytes of its storage.
    pub fn bytes(&self, tensor: Tensor) -> Vec<u8> {
        let storage = self.storage(tensor);
        let mut bytes = vec![0; self.byte_len(tensor)];
        let chunk = 1 << 14;
        bytes
            .par_chunks_mut(chunk * storage.bytes())
            .enumerate()
            .for_each(|(i, bytes)| {
                for (j, bytes) in bytes.chunks_exact_mut(storage.bytes()).enumerate() {
                    store(storage, self.value(tensor, i * chunk + j), bytes);
                }
            });
        bytes
    }

    /// All operands, widened to f32.
    pub fn tensors(&self) -> Tensors {
        let all = |tensor: Tensor| {
            let indices = (0..self.lens[tensor as usize]).into_par_iter();
            indices.map(|index| self.value(tensor, index)).collect()
        };
        Tensors {
            x: all(Tensor::X),
            w: all(Tensor::W),
            bias: all(Tensor::Bias),
            residual: all(Tensor::Residual),
        }
    }
}

/// Where elements lie, as far as their numbers depend on it.
#[derive(Clone, Debug)]
struct Places {
    /// Elements between two channels of the input, and of the filter.
    between: [usize; 2],
    /// All channels, and those that a group sees.
    all: usize,
    channels: usize,
    /// Filters of a group, and weights of a filter.
    filters: usize,
    row: usize,
}

impl Places {
    fn new(problem: &Problem) -> Self {
        let pixels = problem.h() * problem.w();
        Places {
            between: match problem.layout() {
                Layout::Nchw => [pixels, problem.r() * problem.s()],
                Layout::Nhwc => [1, 1],
            },
            all: problem.c(),
            channels: problem.c() / problem.groups(),
            filters: problem.k() / problem.groups(),
            row: problem.reduction(),
        }
    }

    /// The channel, and the pixel among those of all images.
    fn of_x(&self, index: usize) -> [usize; 2] {
        let between = self.between[0];
        let (inner, outer) = (index % between, index / between);
        [outer % self.all, outer / self.all * between + inner]
    }

    /// The channel of the input that it meets, and the filter.
    fn of_w(&self, index: usize) -> [usize; 2] {
        let filter = index / self.row;
        let first = filter / self.filters * self.channels;
        [first + index / self.between[1] % self.channels, filter]
    }
}

/// A number of either sign with this exponent, which is that of a normal f32.
fn real(hash: u64, exponent: i32) -> f32 {
    let mantissa = 1.0 + (hash & 0x7f_ffff) as f32 * 2f32.powi(-23);
    let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
    sign * mantissa * f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Writes one element as it is stored, rounded to nearest.
fn store(storage: Storage, value: f32, bytes: &mut [u8]) {
    match storage {
        Storage::F32 => bytes.copy_from_slice(&value.to_ne_bytes()),
        Storage::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        Storage::Bf16 => bytes.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
    }
}

/// These values as the bytes of their storage, rounded to nearest.
pub fn narrow(storage: Storage, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * storage.bytes()];
    for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(storage.bytes())) {
        store(storage, *value, bytes);
    }
    bytes
}

/// The elements of these bytes, widened to f32.
pub fn widen(storage: Storage, bytes: &[u8]) -> Vec<f32> {
    (0..bytes.len() / storage.bytes())
        .map(|index| widen_one(storage, bytes, index))
        .collect()
}

/// One element of these bytes, widened to f32.
pub(crate) fn widen_one(storage: Storage, bytes: &[u8], index: usize) -> f32 {
    let bytes = &bytes[index * storage.bytes()..];
    match storage {
        Storage::F32 => f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Storage::F16 => f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
        Storage::Bf16 => bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, Reference};

    /// What makes a bitwise comparison fair: no order of additions rounds.
    #[test]
    fn integer_sums_are_exact() {
        let deep = [
            "mb1ic7200ih1oc2kh1+math=f16acc",
            "mb1ic2048ih3oc2kh3+f16+math=f16acc+bias+tanh",
        ];
        let deep = deep.iter().map(|text| text.parse().unwrap());
        let small = Profile {
            flops: 2e5,
            ..Profile::default()
        };
        for problem in (0..300).map(|i| small.problem(7, i)).chain(deep) {
            let recipe = Recipe::new(&problem, Data::Integer, 3);
            let tensors = recipe.tensors();
            let down = recipe.factors[Tensor::W as usize].abs();
            let unit = f64::from(down) * f64::from(problem.epilogue().scale.abs());
            let limit = if problem.math() == Math::F16Acc {
                2048.0
            } else {
                16_777_216.0
            };
            let reference = Reference::new(&problem, &tensors)
                .unwrap()
                .outputs(0..problem.y_len());
            for expected in &reference {
                assert!(
                    expected.mag / unit.min(1.0) <= limit,
                    "{problem}: {expected:?} in {unit}"
                );
                if problem.storage() == Storage::F16 {
                    assert!(expected.mag < 65504.0, "{problem}: {expected:?}");
                }
            }
            // Only in fp32 are there more bits than the coarsest operand has.
            let parts = problem.storage() == Storage::F32 && problem.math() == Math::Fp32;
            for v in tensors.x.iter().chain(&tensors.w) {
                let scaled = v / down;
                assert!(scaled.fract() == 0.0 || v.fract() == 0.0, "{problem}: {v}");
                assert!(v.abs() < 32768.0, "{problem}: {v}");
                assert!(
                    parts || v.abs() <= 127.0 && bf16::from_f32(*v).to_f32() == *v,
                    "{problem}: {v}"
                );
            }
            let nonzero = reference.iter().filter(|e| e.value != 0.0).count();
            assert!(
                nonzero * 4 >= reference.len() || reference.len() < 16,
                "{problem}: {nonzero}"
            );
        }
    }

    /// What rounding to the 11 bits of TF32 leaves.
    fn low(v: f32) -> f32 {
        v - f32::from_bits((v.to_bits() + 0x1000) & !0x1fff)
    }

    /// Of both operands there are low parts, and of no product two: what multiplies in parts leaves
    /// their product out.
    #[test]
    fn whole_numbers_of_fp32_have_low_parts() {
        for (text, [inputs, filters]) in [
            ("mb2ic3ih9oc4kh3", [true, true]),
            ("mb1ic2ih9oc4kh3+nhwc", [true, true]),
            ("mb1ic64ih9oc8kh3", [true, true]),
            ("g4mb1ic12ih9oc8kh5+nhwc+bias", [true, true]),
            ("mb1ic512ih4oc8kh3ph1+relu6", [true, true]),
            ("mb1ic25088ih1oc8kh1+scale=2", [true, true]),
            // The seed chooses.
            ("mb1ic1ih30oc4kh5", [true, false]),
            ("g8mb1ic8ih40oc8kh31", [false, true]),
            // Nothing to be rounded.
            ("mb2ic3ih9oc4kh3+math=tf32", [false, false]),
            ("mb2ic3ih9oc4kh3+math=f16", [false, false]),
            ("mb2ic3ih9oc4kh3+f16+math=fp32", [false, false]),
        ] {
            let problem: Problem = text.parse().unwrap();
            let found = |seed| {
                let tensors = Recipe::new(&problem, Data::Integer, seed).tensors();
                let mut lows = tensors.clone();
                for v in lows.x.iter_mut().chain(&mut lows.w) {
                    *v = low(*v);
                }
                let both = Reference::new(&problem, &lows).unwrap();
                let both = both.outputs(0..problem.y_len());
                let added = f64::from(problem.epilogue().bias) * 3.0;
                assert!(both.iter().all(|low| low.mag <= added), "{text}");
                for v in tensors.x.iter().chain(&tensors.w) {
                    assert!(low(low(*v)) == 0.0, "{text}: {v}");
                    let f16s = half::f16::from_f32(*v).to_f32();
                    assert_eq!(low(*v) != 0.0, f16s != *v, "{text}: {v}");
                }
                [&lows.x, &lows.w].map(|lows| lows.iter().any(|low| *low != 0.0))
            };
            let seeds: Vec<[bool; 2]> = (0..4).map(found).collect();
            let all = [inputs, filters];
            if problem.c() > problem.groups() || all == [false, false] {
                assert!(seeds.iter().all(|found| *found == all), "{text}: {seeds:?}");
            } else {
                let other = [!inputs, !filters];
                assert!(seeds.contains(&all) && seeds.contains(&other), "{text}");
                assert!(seeds.iter().all(|found| *found == all || *found == other));
            }
        }
    }

    /// Operands from end to end of the range, and products of one size.
    #[test]
    fn extreme_exponents_span_the_range_and_nothing_overflows() {
        for (text, least, most) in [
            ("mb2ic128ih7oc32kh3ph1", -55, 55),
            ("mb2ic128ih7oc32kh3ph1+nhwc+math=tf32", -55, 55),
            ("mb2ic128ih7oc32kh3ph1+bf16+nhwc", -55, 55),
            ("mb2ic128ih7oc32kh3ph1+bias+tanh", -33, 33),
            ("mb2ic128ih7oc32kh3ph1+f16+nhwc", -17, 14),
            ("mb2ic128ih7oc32kh3ph1+math=f16+residual", -17, 14),
            ("mb2ic128ih7oc32kh3ph1+math=f16acc", -17, 14),
            ("g64mb2ic128ih7oc128kh3ph1", -45, 45),
            ("g64mb2ic64ih7oc128kh3ph1+nhwc", -45, 45),
        ] {
            let problem: Problem = text.parse().unwrap();
            let recipe = Recipe::new(&problem, Data::Extreme, 2);
            let tensors = recipe.tensors();
            for values in [&tensors.x, &tensors.w] {
                let exponents = values.iter().map(|v| v.abs().log2().floor() as i32);
                let [low, high] = [exponents.clone().min(), exponents.max()].map(Option::unwrap);
                assert!(low <= least && high >= most, "{text}: {low} to {high}");
            }
            let f16 = most < 20;
            let reference = Reference::new(&problem, &tensors).unwrap();
            for expected in reference.outputs(0..problem.y_len()) {
                let most = if f16 { 32_768.0 } else { 2f64.powi(60) };
                assert!(
                    expected.mag > 1e-15 && expected.mag < most,
                    "{text}: {expected:?}"
                );
                assert!(expected.sequential.is_finite());
            }
            // No operand is alone beyond the least f16 that is aligned well.
            let limit = 2f32.powi(-18);
            assert!(!f16 || tensors.x.iter().chain(&tensors.w).all(|v| v.abs() >= limit));
        }
    }

    /// Operands that are subnormal in f16, and sums that are as exact as those of whole numbers.
    #[test]
    fn subnormal_operands_have_exact_sums() {
        let small = Profile {
            flops: 2e5,
            ..Profile::default()
        };
        let (mut inputs, mut filters) = (0, 0);
        for problem in (0..1000).map(|i| small.problem(7, i)) {
            if !Data::Subnormal.fits(&problem) || problem.n() == 0 {
                continue;
            }
            let recipe = Recipe::new(&problem, Data::Subnormal, 3);
            let tensors = recipe.tensors();
            let subnormal = |values: &[f32]| {
                let limit = f16::MIN_POSITIVE.to_f32();
                let mut kept = values.iter().filter(|v| **v != 0.0);
                kept.all(|v| v.abs() < limit && f16::from_f32(*v).to_f32() == *v)
            };
            let [x, w] = [subnormal(&tensors.x), subnormal(&tensors.w)];
            assert!(x || w, "{problem}");
            assert!(x && w || problem.storage() == Storage::F16, "{problem}");
            inputs += usize::from(x);
            filters += usize::from(w);
            let [of_x, of_w, of_sums, _] = recipe.factors.map(|f| f64::from(f.abs()));
            assert_eq!(of_x * of_w, of_sums);
            let scale = f64::from(problem.epilogue().scale.abs());
            let unit = of_sums * scale.min(1.0);
            for expected in Reference::new(&problem, &tensors)
                .unwrap()
                .outputs(0..problem.y_len())
            {
                assert_eq!((expected.value / unit).fract(), 0.0, "{problem}");
                let most = 16_777_216.0;
                assert!(expected.mag / unit <= most, "{problem}: {expected:?}");
            }
        }
        assert!(inputs > 50 && filters > 50, "{inputs} and {filters}");
        let fits = |text: &str| Data::Subnormal.fits(&text.parse().unwrap());
        assert!(fits("ic8ih8oc8kh3+math=f16") && fits("ic8ih8oc8kh3+f16+math=fp32+relu"));
        assert!(!fits("ic8ih8oc8kh3") && !fits("ic8ih8oc8kh3+bf16"));
        assert!(!fits("ic8ih8oc8kh3+f16+math=f16acc") && !fits("ic8ih8oc8kh3+f16+tanh"));
        assert!(!fits("ic8ih8oc8kh3+f16+scale=0.3"));
    }

    #[test]
    fn nothing_overflows_an_f16() {
        for problem in [
            "mb1ic512ih4oc4oh4kh3ph1+f16+nhwc+bias+residual",
            "mb1ic555555ih1oc2kh1+f16+scale=2",
            "mb1ic200000ih1oc2kh1+math=f16acc",
            "mb1ic555555ih1oc2kh1+math=f16acc+scale=0.125",
        ] {
            let problem: Problem = problem.parse().unwrap();
            for data in Data::ALL {
                let tensors = Recipe::new(&problem, data, 1).tensors();
                let reference = Reference::new(&problem, &tensors).unwrap();
                for expected in reference.outputs(0..problem.y_len()) {
                    // Of every order of additions, where data does not cancel in all of them.
                    let most = match data {
                        Data::Normal | Data::Wide if problem.reduction() > 10_000 => {
                            expected.value.abs()
                        }
                        _ => expected.mag,
                    };
                    assert!(most < 40_000.0, "{data}: {expected:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_the_values() {
        for problem in [
            "mb2ic3ih5oc4kh3+bias+residual",
            "mb2ic3ih5oc4kh3+bf16+bias+residual",
        ] {
            let problem: Problem = problem.parse().unwrap();
            let recipe = Recipe::new(&problem, Data::Normal, 9);
            let tensors = recipe.tensors();
            assert_eq!(
                widen(problem.storage(), &recipe.bytes(Tensor::X)),
                tensors.x
            );
            assert_eq!(
                widen(Storage::F32, &recipe.bytes(Tensor::Bias)),
                tensors.bias
            );
            assert_eq!(tensors.residual.len(), problem.residual_len());
        }
    }
}
