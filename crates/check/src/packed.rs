//! The filter as a variant packs it, watched as far as its memory can be.

use std::{ffi::c_void, ptr::null};

use convforge::{Conv, Error, Packed, Result, Stream, Workspace, variant::Space};

use crate::{
    fence::{Fence, Fenced, whole},
    outcome::{Trouble, wrong},
};

/// A filter packed for a convolution.
pub(crate) enum Filter {
    /// The variant uses it as it is.
    Plain,
    /// Between fences, twice: the one that no run saw tells afterwards what the other one was.
    Fenced([Fenced; 2]),
    /// Where the library has it.
    Constant(Box<Constant>),
}

impl Filter {
    /// Packs the filter `w`.
    pub(crate) fn new(conv: &Conv, w: &Fenced, stream: &Stream) -> Result<Self> {
        let Some(packing) = conv.packing() else {
            return Ok(Filter::Plain);
        };
        if packing.space == Space::Constant {
            return Ok(Filter::Constant(Box::new(Constant::new(conv, w, stream)?)));
        }
        let packed = || {
            let align = Workspace::ALIGN;
            let pattern = Fence::Pattern;
            let mut packed = Fenced::new(conv.device(), packing.bytes, align, pattern, stream)?;
            // SAFETY: both have the sizes that the problem and the plan say.
            let done = unsafe { conv.pack_into(w.as_ptr(), packed.address(), stream) };
            stream.synchronize()?;
            done.map(|()| packed)
        };
        Ok(Filter::Fenced([packed()?, packed()?]))
    }

    /// What a run is given.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        match self {
            Filter::Plain => null(),
            Filter::Fenced([packed, _]) => packed.as_ptr(),
            Filter::Constant(constant) => constant.packed.as_ptr(),
        }
    }

    /// After the runs: it is what it was, and so is what surrounds it.
    pub(crate) fn check(&self, stream: &Stream) -> Result<(), Trouble> {
        let same = match self {
            Filter::Plain => true,
            Filter::Fenced([packed, untouched]) => {
                whole("the packed filter", packed, stream)?;
                whole("the packed filter", untouched, stream)?;
                packed.differences(untouched, stream)? == 0
            }
            Filter::Constant(constant) => constant.is_whole(stream)?,
        };
        match same {
            true => Ok(()),
            false => wrong("the packed filter was changed, or packing twice differs".to_owned()),
        }
    }
}

/// A filter in constant memory. There are no fences, as the library alone gives parts of that
/// memory. Instead, as far as there is room, the parts before and behind have filters of poison:
/// a kernel that reads beyond its own part and uses it gives NaN.
pub(crate) struct Constant {
    packed: Packed,
    /// What was packed when nothing else was there.
    content: Vec<u8>,
    neighbours: [Option<Packed>; 2],
}

impl Constant {
    fn new(conv: &Conv, w: &Fenced, stream: &Stream) -> Result<Self> {
        let (device, align) = (conv.device(), conv.problem().align());
        let poison = Fenced::new(device, w.len(), align, Fence::Poison, stream)?;
        let pack = |filter: &Fenced| {
            // SAFETY: both filters have the size that the problem says.
            let packed = unsafe { conv.pack_raw(filter.as_ptr(), stream)? };
            packed.ok_or_else(|| Error::Unavailable("packed filter of this variant".to_owned()))
        };
        let neighbour = || match pack(&poison) {
            Err(Error::ConstantMemory { .. }) => Ok(None),
            packed => packed.map(Some),
        };
        let content = content(&pack(w)?, stream)?;
        // Parts are given from the beginning on.
        let mut before = neighbour()?;
        let packed = match pack(w) {
            Err(Error::ConstantMemory { .. }) if before.is_some() => {
                before = None;
                pack(w)?
            }
            packed => packed?,
        };
        Ok(Constant {
            packed,
            content,
            neighbours: [before, neighbour()?],
        })
    }

    fn is_whole(&self, stream: &Stream) -> Result<bool> {
        // What was packed from the same poison stays the same.
        let neighbours = match &self.neighbours {
            [Some(before), Some(behind)] => content(before, stream)? == content(behind, stream)?,
            _ => true,
        };
        Ok(neighbours && content(&self.packed, stream)? == self.content)
    }
}

/// The bytes of a packed filter.
fn content(packed: &Packed, stream: &Stream) -> Result<Vec<u8>> {
    stream.synchronize()?;
    #[cfg(feature = "cuda")]
    if let Some(stream) = stream.as_gpu() {
        // Straight to the host: compute-sanitizer does not see that a copy on the device, out of
        // constant memory, copies what was written.
        let mut bytes = vec![0; packed.bytes()];
        // SAFETY: the packed filter has so many bytes.
        unsafe { stream.download_raw(packed.as_ptr() as u64, &mut bytes)? };
        return Ok(bytes);
    }
    // SAFETY: it has so many bytes of host memory, which the packing wrote.
    let bytes = unsafe { std::slice::from_raw_parts(packed.as_ptr().cast(), packed.bytes()) };
    Ok(bytes.to_vec())
}
