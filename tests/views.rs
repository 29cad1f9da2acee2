//! Parts of buffers, slices and memory of the caller's as operands, on the CPU.

use convforge::{Conv, Device, Error, Operands, Pick, Problem, Stream, View, ViewMut, Workspace};

/// One image of three channels, times the sum of its filter's weights.
const IMAGE: &str = "mb1ic3ih4oc2kh1";

fn ready(text: &str) -> (Device, Conv, Stream, Workspace) {
    let device = Device::cpu();
    let problem: Problem = text.parse().unwrap();
    let conv = Conv::new(&device, &problem, &Pick::Rule).unwrap();
    let stream = device.stream().unwrap();
    let workspace = conv.workspace(&stream).unwrap();
    (device, conv, stream, workspace)
}

#[test]
fn each_image_of_a_batch_by_itself_is_the_batch() {
    let (device, batch, stream, mut workspace) = ready("mb5ic3ih4oc2kh1");
    let (_, image, ..) = ready(IMAGE);
    let (x_len, y_len) = (image.problem().x_len(), image.problem().y_len());
    let values = |len: usize| (0..len).map(|i| (i % 13) as f32 - 6.0).collect::<Vec<_>>();
    let x = device.upload(&values(5 * x_len)).unwrap();
    let w = device.upload(&values(6)).unwrap();
    let mut whole = device.alloc(5 * y_len).unwrap();
    batch
        .run(&x, &w, &mut whole, &mut workspace, &stream)
        .unwrap();
    let whole = whole.to_vec(&stream).unwrap();
    assert!(whole.iter().any(|y| *y != whole[0]));

    let mut workspace = image.workspace(&stream).unwrap();
    let mut y = device.upload(&vec![f32::NAN; 5 * y_len]).unwrap();
    // The third is left out.
    for i in [4, 0, 3, 1] {
        let x = x.view(i * x_len..(i + 1) * x_len).unwrap();
        let y = y.view_mut(i * y_len..(i + 1) * y_len).unwrap();
        image.run(x, &w, y, &mut workspace, &stream).unwrap();
    }
    let parts = y.to_vec(&stream).unwrap();
    for (i, (part, whole)) in parts.chunks(y_len).zip(whole.chunks(y_len)).enumerate() {
        match i {
            2 => assert!(part.iter().all(|y| y.is_nan())),
            _ => assert_eq!(part, whole, "image {i}"),
        }
    }
}

#[test]
fn slices_serve_on_the_cpu() {
    #[repr(align(16))]
    struct Aligned<const N: usize>([f32; N]);

    let (_, conv, stream, mut workspace) = ready("mb1ic1ih2oc1kh1+bias");
    let (x, w, bias) = (Aligned([1., 2., 3., 4.]), Aligned([2.]), Aligned([0.5]));
    let mut y = Aligned([0f32; 4]);
    let operands = Operands::new(&x.0[..], &w.0[..], &mut y.0[..]).bias(&bias.0[..]);
    conv.run_with(operands, &mut workspace, &stream).unwrap();
    assert_eq!(y.0, [2.5, 4.5, 6.5, 8.5]);
}

#[test]
fn halves_of_an_output_are_written_apart() {
    let (device, conv, stream, mut workspace) = ready(IMAGE);
    let len = conv.problem().y_len();
    let x = device.upload(&vec![1f32; conv.problem().x_len()]).unwrap();
    let mut y = device.alloc::<f32>(2 * len).unwrap();
    let (one, two) = ViewMut::from(&mut y).split_at(len).unwrap();
    for (y, weight) in [(two, 2f32), (one, 1.)] {
        let w = device.upload(&[weight; 6]).unwrap();
        conv.run(&x, &w, y, &mut workspace, &stream).unwrap();
    }
    let y = y.to_vec(&stream).unwrap();
    assert!(y[..len].iter().all(|y| *y == 3.) && y[len..].iter().all(|y| *y == 6.));
}

#[test]
fn parts_that_are_not_there_are_errors() {
    let mut buffer = Device::cpu().alloc::<f32>(10).unwrap();
    assert_eq!(buffer.view(..).unwrap().len(), 10);
    assert_eq!(buffer.view(3..=9).unwrap().len(), 7);
    assert!(buffer.view(10..).unwrap().is_empty());
    let part = buffer.view(2..8).unwrap();
    assert_eq!(
        part.slice(1..).unwrap().as_ptr(),
        buffer.view(3..).unwrap().as_ptr()
    );
    assert!(part.slice(..7).is_err());
    #[allow(clippy::reversed_empty_ranges)]
    let ranges = [0..11, 11..11, 5..4, usize::MAX..usize::MAX];
    for range in ranges {
        let error = buffer.view(range.clone()).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { len: 10, .. }),
            "{range:?}: {error}"
        );
        assert!(buffer.view_mut(range).is_err());
    }
    assert!(buffer.view(0..=usize::MAX).is_err());
    assert!(ViewMut::from(&mut buffer).split_at(11).is_err());
}

/// A part begins where it begins: the error says how to lower the guarantee.
#[test]
fn a_part_that_is_not_aligned_is_refused_with_the_way_out() {
    let (device, conv, stream, mut workspace) = ready(IMAGE);
    let problem = conv.problem();
    let x = device.alloc::<f32>(problem.x_len() + 1).unwrap();
    let w = device.alloc::<f32>(problem.w_len()).unwrap();
    let mut y = device.alloc::<f32>(problem.y_len()).unwrap();
    let part = x.view(1..).unwrap();
    let error = conv
        .run(part.clone(), &w, &mut y, &mut workspace, &stream)
        .unwrap_err();
    assert!(error.to_string().contains("`align=4`"), "{error}");
    let (_, loose, ..) = ready(&format!("{IMAGE}+align=4"));
    loose
        .run(part, &w, &mut y, &mut workspace, &stream)
        .unwrap();
}

#[test]
fn memory_that_cannot_be_is_refused() {
    let device = Device::cpu();
    let elements = [0f32; 4];
    let at = |address: usize, len| {
        // SAFETY: nothing is done with the view.
        unsafe { View::<f32>::from_raw(&device, address as *const _, len) }
    };
    let start = elements.as_ptr() as usize;
    assert_eq!(at(start, 4).unwrap().len(), 4);
    assert!(at(0, 0).unwrap().is_empty());
    for (address, len) in [
        (0, 1),
        (start + 1, 1),
        (start, usize::MAX),
        (start, usize::MAX / 4),
    ] {
        let error = at(address, len).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
    }
}
