//! Bilinear enlargement of images, bit for bit that of the trained network's data.
//!
//! Output pixel `k` lies at the source coordinate `(k + 0.5) * (old / new) - 0.5`; what is outside
//! the image counts as zero; the f64 sum of `(value * weight_y) * weight_x` over the four
//! neighbours y0x0, y0x1, y1x0, y1x1, in that order, is truncated to a byte. The order matters:
//! any other one, or a fused multiply-add, changes pixels. The rule that the data was made with
//! also divides by 256 first and multiplies by 256 last; both are exact and therefore left out.

use rayon::prelude::*;

use super::idx::Images;
use crate::{Error, Result};

/// The two source pixels of an output row or column.
struct Tap {
    /// The first of them, counted from one pixel outside the image; the other follows it.
    first: usize,
    /// Their weights.
    weights: [f64; 2],
}

/// Resizes every image to `side` x `side` pixels. Meant for enlarging: nothing is smoothed when
/// the images become smaller.
///
/// # Errors
/// [`Error::Input`] if `pixels` is not `count * rows * cols` long, the images have no
/// pixels, `side` is 0, or the result does not fit in memory.
pub fn resize(images: &Images, side: usize) -> Result<Images> {
    let &Images {
        count,
        rows,
        cols,
        ref pixels,
    } = images;
    let area = rows.checked_mul(cols).filter(|&area| area > 0);
    if area.and_then(|area| area.checked_mul(count)) != Some(pixels.len()) {
        return Err(Error::Input(format!(
            "{count} images of {rows}x{cols} pixels cannot have {} bytes",
            pixels.len()
        )));
    }
    if side == 0 {
        return Err(Error::Input(
            "images cannot be resized to 0x0 pixels".to_owned(),
        ));
    }
    let mut resized = Images::blank(count, side, side)?;
    if count == 0 {
        return Ok(resized);
    }
    let (down, across) = (taps(rows, side), taps(cols, side));
    resized
        .pixels
        .par_chunks_exact_mut(side * side)
        .zip(pixels.par_chunks_exact(rows * cols))
        .for_each(|(to, from)| resize_one(from, cols, to, &down, &across));
    Ok(resized)
}

fn taps(old: usize, new: usize) -> Vec<Tap> {
    let scale = old as f64 / new as f64;
    (0..new)
        .map(|k| {
            let at = (k as f64 + 0.5) * scale - 0.5;
            let far = at - at.floor();
            Tap {
                first: (at.floor() + 1.0) as usize,
                weights: [1.0 - far, far],
            }
        })
        .collect()
}

fn resize_one(from: &[u8], cols: usize, to: &mut [u8], down: &[Tap], across: &[Tap]) {
    // Both source rows times their weight, with a zero on either side for what is outside.
    let mut rows = [vec![0.0; cols + 2], vec![0.0; cols + 2]];
    for (to, tap) in to.chunks_exact_mut(across.len()).zip(down) {
        for (i, row) in rows.iter_mut().enumerate() {
            let inside = &mut row[1..=cols];
            let source = (tap.first + i).checked_sub(1);
            match source.and_then(|y| from.chunks_exact(cols).nth(y)) {
                Some(values) => {
                    for (product, &value) in inside.iter_mut().zip(values) {
                        *product = f64::from(value) * tap.weights[i];
                    }
                }
                None => inside.fill(0.0),
            }
        }
        let [upper, lower] = &rows;
        for (pixel, tap) in to.iter_mut().zip(across) {
            let (x, [near, far]) = (tap.first, tap.weights);
            let sum = upper[x] * near + upper[x + 1] * far + lower[x] * near + lower[x + 1] * far;
            *pixel = sum as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as it is written, pixel by pixel.
    fn plain(images: &Images, side: usize) -> Vec<u8> {
        let Images { rows, cols, .. } = *images;
        let coordinate = |k: usize, old: usize| (k as f64 + 0.5) * (old as f64 / side as f64) - 0.5;
        let mut out = Vec::new();
        for image in images.pixels.chunks(rows * cols) {
            let value = |y: f64, x: f64| {
                let inside = y >= 0.0 && x >= 0.0 && y < rows as f64 && x < cols as f64;
                if inside {
                    f64::from(image[y as usize * cols + x as usize]) / 256.0
                } else {
                    0.0
                }
            };
            for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                let (y, x) = (coordinate(y, rows), coordinate(x, cols));
                let (y0, x0) = (y.floor(), x.floor());
                let mut sum = 0.0;
                for (yy, wy) in [(y0, 1.0 - (y - y0)), (y0 + 1.0, y - y0)] {
                    for (xx, wx) in [(x0, 1.0 - (x - x0)), (x0 + 1.0, x - x0)] {
                        sum += (value(yy, xx) * wy) * wx;
                    }
                }
                out.push((sum * 256.0) as u8);
            }
        }
        out
    }

    #[test]
    fn equals_the_rule() {
        let (images, _) = Images::synthetic(10, 3).unwrap();
        for side in [86, 70, 28, 29, 1] {
            let resized = resize(&images, side).unwrap();
            assert_eq!(
                (resized.count, resized.rows, resized.cols),
                (10, side, side)
            );
            assert!(resized.pixels == plain(&images, side), "side {side}");
        }
        assert_eq!(resize(&images, 28).unwrap(), images);
    }

    #[test]
    fn takes_images_that_are_not_square() {
        let pixels = (0..2 * 3 * 7).map(|i| (i * 37 % 256) as u8).collect();
        let images = Images {
            count: 2,
            rows: 3,
            cols: 7,
            pixels,
        };
        assert_eq!(resize(&images, 20).unwrap().pixels, plain(&images, 20));
    }

    #[test]
    fn takes_no_images_at_any_side() {
        let none = Images {
            count: 0,
            rows: 28,
            cols: 28,
            pixels: Vec::new(),
        };
        let side = u32::MAX as usize;
        assert!(resize(&none, side).unwrap().pixels.is_empty());
    }

    #[test]
    fn refuses_what_is_no_set_of_images() {
        let refused = |count, rows, cols, bytes, side| {
            let images = Images {
                count,
                rows,
                cols,
                pixels: vec![0; bytes],
            };
            resize(&images, side).unwrap_err().to_string()
        };
        assert_eq!(
            refused(2, 3, 4, 23, 86),
            "2 images of 3x4 pixels cannot have 23 bytes"
        );
        assert_eq!(
            refused(2, 0, 4, 0, 86),
            "2 images of 0x4 pixels cannot have 0 bytes"
        );
        assert_eq!(
            refused(1, 2, 2, 4, 0),
            "images cannot be resized to 0x0 pixels"
        );
        let side = usize::MAX / 2;
        assert_eq!(
            refused(1, 2, 2, 4, side),
            format!("1 images of {side}x{side} pixels do not fit in memory")
        );
    }
}
