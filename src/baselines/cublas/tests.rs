//! The products, done on the CPU by the letter of cuBLAS's definition, against the CPU's loops: a wrong
//! leading dimension, stride, order or transposition shows here without a GPU.

use super::product::{Form, Gemm, Product};
use crate::{Conv, Device, Layout, Limits, Problem, variant::Query, variants};

/// C = op(A) B in column-major order, and what cuBLAS demands of its arguments. `c` holds NaN
/// wherever nothing was written yet.
fn multiply(gemm: &Gemm, a: &[f32], b: &[f32], c: &mut [f32]) {
    let Gemm {
        m,
        n,
        k,
        lda,
        ldb,
        ldc,
        batch,
        calls,
        ..
    } = *gemm;
    assert!(
        lda >= if gemm.filter_first { k } else { m } && ldb >= k && ldc >= m,
        "{gemm:?}"
    );
    for (call, one) in (0..calls.count).flat_map(|i| (0..batch.count).map(move |j| (i, j))) {
        let a = &a[call * calls.a + one * batch.a..];
        let b = &b[call * calls.b + one * batch.b..];
        let c = &mut c[call * calls.c + one * batch.c..];
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let op_a = |l| {
                if gemm.filter_first {
                    a[l + i * lda]
                } else {
                    a[i + l * lda]
                }
            };
            let sum = (0..k).map(|l| op_a(l) * b[l + j * ldb]).sum();
            let old = std::mem::replace(&mut c[i + j * ldc], sum);
            assert!(old.is_nan(), "{gemm:?} writes an element twice");
        }
    }
}

/// csrc/passes/unroll.cu.
fn unroll(p: &Problem, product: &Product, x: &[f32], first: usize, count: usize) -> Vec<f32> {
    let (channels, depth) = (p.c() / p.groups(), product.depth);
    let pixels = count * p.p() * p.q();
    let nchw = p.layout() == Layout::Nchw;
    let element = |e: usize| {
        let (row, column) = match product.form {
            Form::Rows => (e % (depth * p.groups()), e / (depth * p.groups())),
            Form::Wide | Form::Batched => (e / pixels, e % pixels),
        };
        let (group, i) = (row / depth, row % depth);
        if i >= p.reduction() {
            return 0.0;
        }
        let (c, r, s) = match nchw {
            true => (i / p.s() / p.r(), i / p.s() % p.r(), i % p.s()),
            false => (i % channels, i / channels / p.s(), i / channels % p.s()),
        };
        let n = first + column / p.q() / p.p();
        let (row, column) = (column / p.q() % p.p(), column % p.q());
        let h = (row * p.stride()[0] + r * p.dilation()[0]).checked_sub(p.pad().top);
        let w = (column * p.stride()[1] + s * p.dilation()[1]).checked_sub(p.pad().left);
        match (h, w) {
            (Some(h), Some(w)) if h < p.h() && w < p.w() => {
                let c = group * channels + c;
                x[if nchw {
                    ((n * p.c() + c) * p.h() + h) * p.w() + w
                } else {
                    ((n * p.h() + h) * p.w() + w) * p.c() + c
                }]
            }
            _ => 0.0,
        }
    };
    (0..pixels * p.groups() * depth).map(element).collect()
}

/// The filter with its rows filled up.
fn pack(product: &Product, w: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| {
        let mut row = row.to_vec();
        row.resize(product.depth, 0.0);
        row
    };
    w.chunks_exact(product.reduction).flat_map(row).collect()
}

/// csrc/finish.cu without an epilogue: the sums of some images in y's order.
fn finish(p: &Problem, product: &Product, sums: &[f32], count: usize) -> Vec<f32> {
    let strides = product.strides(count);
    let [image, channel, row, column] =
        [strides.image, strides.channel, strides.row, strides.column].map(|s| s as usize);
    let (rows, columns, k) = (p.p(), p.q(), p.k());
    (0..count * rows * columns * k)
        .map(|o| {
            let [n, k, i, j] = match p.layout() {
                Layout::Nchw => [
                    o / columns / rows / k,
                    o / columns / rows % k,
                    o / columns % rows,
                    o % columns,
                ],
                Layout::Nhwc => [
                    o / k / columns / rows,
                    o % k,
                    o / k / columns % rows,
                    o / k % columns,
                ],
            };
            sums[n * image + k * channel + i * row + j * column]
        })
        .collect()
}

/// The whole variant on the CPU, so many images at a time.
fn convolve(p: &Problem, product: &Product, x: &[f32], w: &[f32], chunk: usize) -> Vec<f32> {
    let mut y = Vec::new();
    let w = &pack(product, w);
    for first in (0..p.n()).step_by(chunk) {
        let count = chunk.min(p.n() - first);
        let unrolled = match product.direct {
            true => x[first * p.c() * p.h() * p.w()..][..count * p.c() * p.h() * p.w()].to_vec(),
            false => unroll(p, product, x, first, count),
        };
        let mut sums = vec![f32::NAN; count * p.k() * p.p() * p.q()];
        let gemm = product.gemm(count);
        match gemm.filter_first {
            true => multiply(&gemm, w, &unrolled, &mut sums),
            false => multiply(&gemm, &unrolled, w, &mut sums),
        }
        // In place, the sums are y; the finishing pass must then find nothing to move.
        let finished = finish(p, product, &sums, count);
        assert!(
            product.form == Form::Wide || finished == sums,
            "{p}: not in y's order"
        );
        y.extend(finished);
    }
    y
}

/// The convolution by the CPU's loops: the numbers are whole, so every sum is exact.
fn by_loops(p: &Problem, x: &[f32], w: &[f32]) -> Vec<f32> {
    let device = Device::cpu();
    let loops = variants::find("cpu_direct").unwrap();
    let conv = Conv::with_variant(&device, p, loops).unwrap();
    let stream = device.stream().unwrap();
    let (x, w) = (device.upload(x).unwrap(), device.upload(w).unwrap());
    let mut y = device.alloc(p.y_len()).unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    conv.run(&x, &w, &mut y, &mut workspace, &stream).unwrap();
    y.to_vec(&stream).unwrap()
}

fn parse(text: &str) -> Problem {
    text.parse().unwrap()
}

#[test]
fn every_form_is_the_convolution() {
    let problems = [
        // kernels, strides, padding on four sides, dilation, groups; nothing square
        "mb3ic4ih5iw7oc6kh3kw2",
        "mb3ic4ih6iw5oc6oh3ow4kh3kw2sh2sw1ph1pw0",
        "mb5ic2ih9iw8oc3kh3kw3dh1dw2ph1pw2",
        "g2mb3ic4ih5iw7oc6kh3kw2",
        "g3mb2ic6ih4iw5oc3kh2ph1",
        "g4mb3ic4ih5iw6oc8kh3ph1",
        // one tap: as it lies, and with stride or padding not
        "mb3ic5ih4iw7oc3kh1",
        "g3mb2ic6ih4iw5oc9kh1",
        "g2mb5ic4ih3iw2oc2kh1",
        "mb3ic5ih5iw7oc3oh3ow4kh1sh2ph0",
        "mb2ic3ih3iw4oc2oh5ow6kh1ph1",
        "mb3ic5ih1iw7oc3oh1ow7kh1sh2sw1ph0pw0",
        // fully connected: one pixel, or a filter as large as the image
        "mb1ic7ih1oc5kh1",
        "mb4ic7ih1oc5kh1",
        "g2mb4ic6ih1oc4kh1",
        "mb3ic2ih4iw3oc5kh4kw3",
        "g2mb3ic4ih2iw3oc6kh2kw3",
        // one pixel that padding makes
        "mb3ic2ih2iw3oc5oh1ow1kh4kw5ph1pw1",
        "mb1ic3ih5iw6oc4kh3",
        "g2mb1ic4ih5iw6oc4kh3",
        "mb1ic1ih1oc1kh1",
    ];
    let mut seen = Vec::new();
    // With fp32 and with tensor cores, whose reductions are filled up.
    for (text, math) in problems
        .into_iter()
        .flat_map(|text| [(text, ""), (text, "+math=f16")])
    {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let p = parse(&format!("{text}{math}"));
            let p = p.with(|shape| shape.layout = layout).unwrap();
            let number = |i: usize, prime: usize| ((i * prime) % 11) as f32 - 5.0;
            let x: Vec<f32> = (0..p.x_len()).map(|i| number(i * i + i, 7)).collect();
            let w: Vec<f32> = (0..p.w_len()).map(|i| number(i * i + 3 * i, 3)).collect();
            let expected = by_loops(&p, &x, &w);
            for wanted in [None, Some(Form::Wide), Some(Form::Batched)] {
                let Ok(product) = Product::new(&p, wanted) else {
                    continue;
                };
                seen.push((product.form, product.direct));
                for chunk in [1, 2, p.n()] {
                    let found = convolve(&p, &product, &x, &w, chunk);
                    assert!(found == expected, "{p} as {wanted:?}, {chunk} at a time");
                }
            }
        }
    }
    for form in [
        (Form::Rows, true),
        (Form::Rows, false),
        (Form::Wide, false),
        (Form::Batched, true),
        (Form::Batched, false),
    ] {
        assert!(seen.contains(&form), "no problem is {form:?}");
    }
}

#[test]
fn the_form_follows_the_rule() {
    let form = |text: &str| {
        let product = Product::new(&parse(text), None).unwrap();
        (product.form, product.direct, product.in_place)
    };
    let (rows, wide, batched) = (Form::Rows, Form::Wide, Form::Batched);
    assert_eq!(form("mb64ic64ih56oc64oh56kh3ph1"), (batched, false, true));
    assert_eq!(
        form("mb64ic64ih56oc64oh56kh3ph1+relu"),
        (wide, false, false)
    );
    assert_eq!(form("g2mb64ic64ih56oc64oh56kh3ph1"), (wide, false, false));
    assert_eq!(form("mb64ic512ih7oc512oh7kh3ph1"), (wide, false, false));
    // One long product, where it has few columns and is of fp32.
    assert_eq!(form("mb1000ic1ih86oc4oh80kh7"), (wide, false, false));
    assert_eq!(form("mb1000ic1ih86oc4oh80kh7+f16"), (batched, false, true));
    assert_eq!(form("mb1000ic12ih33oc24oh29kh5"), (batched, false, true));
    // As it lies, unless tensor cores would read it unaligned.
    assert_eq!(form("mb64ic512ih7oc2048kh1"), (batched, true, true));
    assert_eq!(form("mb64ic512ih7oc2048kh1+f16"), (wide, false, false));
    assert_eq!(
        form("mb64ic256ih14oc1024kh1+f16+relu"),
        (batched, true, false)
    );
    assert_eq!(form("mb64ic512ih7oc2048kh1+f16+nhwc"), (rows, true, true));
    assert_eq!(form("mb1ic25088ih1oc4096kh1"), (rows, true, true));
    assert_eq!(form("mb1ic512ih7oc4096kh7+math=f16"), (rows, true, true));
    // Groups of few channels in NHWC.
    assert_eq!(
        form("g32mb64ic128ih56oc128oh56kh3ph1+nhwc"),
        (wide, false, false)
    );
    assert_eq!(
        form("g32mb64ic256ih28oc256oh28kh3ph1+nhwc"),
        (rows, false, true)
    );
    // Types that cuBLAS cannot store: 16-bit under strict fp32, f32 after sums in f16.
    assert_eq!(
        form("mb1ic256ih14oc1024kh1+f16+math=fp32"),
        (batched, true, false)
    );
    assert_eq!(
        form("mb1ic256ih14oc1024kh1+f16+math=f16acc"),
        (batched, true, true)
    );
    assert_eq!(
        form("mb1ic256ih14oc1024kh1+math=f16acc"),
        (batched, true, false)
    );
}

/// Lines that tensor cores cannot read in words took four times what was reckoned, so nothing is: no rule
/// takes such a form, and whoever names it has it.
#[test]
fn a_form_of_misaligned_lines_has_no_estimate() {
    let limits = Limits::of_chip("h200").unwrap();
    let variant = variants::find("cublas_gemm").unwrap();
    let configs = &variant.info().configs;
    let config = configs.iter().position(|name| name == "batched").unwrap();
    let estimates = |text: &str| {
        let problem = parse(text);
        [0, config].map(|config| {
            let plan = variant.plan(&Query::new(&problem, config, &limits));
            plan.unwrap().us
        })
    };
    for text in [
        "mb64ic2048ih7oc512oh7kh1+f16",
        "mb64ic512ih7oc2048oh7kh1+math=tf32",
        "mb1ic512ih7oc2048oh7kh1+f16",
        "mb64ic256ih14oc256oh14kh3ph1+f16",
    ] {
        let [auto, batched] = estimates(text);
        assert!(auto.is_some() && batched.is_none(), "{text}: {batched:?}");
    }
    for text in [
        "mb64ic1024ih14oc256oh14kh1+f16",
        "mb64ic2048ih7oc512oh7kh1",
        "mb64ic64ih8oc64oh8kh3ph1+f16",
        "mb1ic512ih7oc512oh7kh3ph1+f16",
    ] {
        assert!(estimates(text)[1].is_some(), "{text}");
    }
}

#[test]
fn what_does_not_differ_is_refused() {
    for text in ["mb4ic3ih5oc4kh3+nhwc", "mb1ic3ih5oc4kh3", "mb4ic3ih1oc4kh1"] {
        assert!(
            Product::new(&parse(text), Some(Form::Wide)).is_err(),
            "{text}"
        );
    }
    let huge = "mb1ic1ih70000oc1kh1";
    assert!(
        Product::new(&parse(huge), None)
            .unwrap_err()
            .contains("32 bits")
    );
    let vast = "mb1ic1ih60000oc1kh1001";
    assert!(
        Product::new(&parse(vast), None)
            .unwrap_err()
            .contains("2^46")
    );
}

#[test]
fn chunks_fit_and_are_even() {
    let product = |text: &str| Product::new(&parse(text), None).unwrap();
    let unrolled = product("mb10000ic1ih86oc4kh7");
    let image = unrolled.bytes_per_image();
    assert_eq!(unrolled.chunk(0), 1);
    assert_eq!(unrolled.chunk(3 * image + 5), 3);
    for images in [20, 100, 655, 5000, 20000] {
        let chunk = unrolled.chunk(images * image);
        assert!(chunk <= images && chunk * 6400 <= 1 << 22, "{chunk}");
        assert!(chunk.is_multiple_of(8), "{chunk}");
    }
    // 655 fit; 16 rounds of 632 rather than of 648 and a short one.
    assert_eq!(unrolled.chunk(5000 * image), 632);
    // All images at once, where nothing is written beside y; and none at all.
    let direct = product("mb100ic64ih14oc64kh1");
    assert_eq!((direct.bytes_per_image(), direct.chunk(0)), (0, 100));
    assert_eq!(product("mb0ic64ih14oc64kh1").chunk(0), 1);
}
