//! Scratch memory and library handles.

use std::{
    any::{Any, TypeId},
    ffi::c_void,
    fmt,
    ptr::null_mut,
};

use crate::{Buffer, Device, Error, Result, Stream, variant::Prepared};

/// Scratch memory and library handles of one stream, which it keeps alive. It serves any number of
/// convolutions, one after the other, in the stream's order; a graph that was recorded with it uses
/// it too.
///
/// Drop one that holds a handle of cuBLAS or cuDNN while no thread records a stream of its device. These
/// libraries wait for the whole device when a handle is destroyed; during a recording the driver refuses
/// that, and spoils the recording.
pub struct Workspace {
    // Handles go first: libraries wait for their stream when one is destroyed.
    handles: Vec<(TypeId, Box<dyn Any + Send>)>,
    memory: Memory,
    limit: usize,
    stream: Stream,
    device: Device,
}

/// The bytes of a workspace: its own, or an address that the caller vouched for.
enum Memory {
    Owned(Buffer<u8>),
    Borrowed { address: usize, bytes: usize },
}

impl Memory {
    fn len(&self) -> usize {
        match self {
            Memory::Owned(buffer) => buffer.len(),
            Memory::Borrowed { bytes, .. } => *bytes,
        }
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        match self {
            Memory::Owned(buffer) if buffer.is_empty() => null_mut(),
            Memory::Owned(buffer) => buffer.as_mut_ptr(),
            Memory::Borrowed { address, .. } => *address as *mut c_void,
        }
    }
}

impl Workspace {
    /// What the addresses of workspaces and packed filters must be multiples of, in bytes.
    pub const ALIGN: usize = 128;

    /// An empty workspace for convolutions on `stream`; [`reserve`](Self::reserve) fills it.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn new(stream: &Stream) -> Result<Self> {
        let device = stream.device();
        Ok(Workspace {
            handles: Vec::new(),
            memory: Memory::Owned(device.alloc(0)?),
            limit: usize::MAX,
            stream: stream.clone(),
            device,
        })
    }

    /// A workspace in memory of the caller's: another allocator's, or a part of something larger.
    /// It never grows; [`reserve`](Self::reserve) makes the library handles.
    ///
    /// # Errors
    /// [`Error::WorkspaceMisaligned`] where the address is no multiple of [`ALIGN`](Self::ALIGN);
    /// [`Error::Memory`] where it is null or, as far as the driver knows, not of `stream`'s device. Of no bytes
    /// nothing is asked.
    ///
    /// # Safety
    /// The address is of `stream`'s device, and until the workspace is dropped and the stream is
    /// past its work, nothing else uses these bytes.
    pub unsafe fn from_raw(stream: &Stream, address: *mut c_void, bytes: usize) -> Result<Self> {
        const WHAT: &str = "the workspace";
        let device = stream.device();
        if bytes > 0 {
            device.expect_own(WHAT, address)?;
        }
        let address = address as usize;
        if !address.is_multiple_of(Self::ALIGN) {
            return Err(Error::WorkspaceMisaligned {
                what: WHAT,
                address,
                align: Self::ALIGN,
            });
        }
        Ok(Workspace {
            handles: Vec::new(),
            memory: Memory::Borrowed { address, bytes },
            limit: bytes,
            stream: stream.clone(),
            device,
        })
    }

    /// Never takes more than `bytes`, where a variant can do with less than it would like.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = match self.memory {
            Memory::Owned(_) => bytes,
            Memory::Borrowed { bytes: held, .. } => bytes.min(held),
        };
        self
    }

    /// So many bytes, or as many as it may take.
    pub(super) fn limited(&self, bytes: usize) -> usize {
        bytes.min(self.limit)
    }

    /// Holds `wanted` bytes, of which it may take so many, or `least` where they do not fit on the
    /// device; as many as before where that does not fit either.
    pub(super) fn grow(&mut self, least: usize, wanted: usize, stream: &Stream) -> Result<()> {
        // Borrowed memory is its own limit, so it never grows.
        if self.memory.len() >= wanted {
            return Ok(());
        }
        stream.synchronize()?;
        let held = self.memory.len();
        // Where it was there may be room for it together with what is free beside.
        self.memory = Memory::Owned(self.device.alloc(0)?);
        let taken = match self.device.alloc(wanted) {
            Err(Error::OutOfMemory { .. }) => self.device.alloc(least.max(held)),
            other => other,
        };
        // What was reserved before goes on with as much as it had.
        let (memory, answer) = match taken {
            Ok(memory) => (Ok(memory), Ok(())),
            Err(error) => (self.device.alloc(held), Err(error)),
        };
        if let Ok(memory) = memory {
            self.memory = Memory::Owned(memory);
        }
        answer
    }

    /// Makes the handle that a launch needs, unless it holds one of its type.
    pub(super) fn hold_handle(&mut self, prepared: &dyn Prepared, stream: &Stream) -> Result<()> {
        if let Some(kind) = prepared.handle_type()
            && self.handles.iter().all(|(held, _)| *held != kind)
        {
            self.handles.push((kind, prepared.handle(stream)?));
        }
        Ok(())
    }

    /// Gives its own memory back, and keeps the handles; [`reserve`](Self::reserve) takes it again.
    ///
    /// # Errors
    /// [`Error::WrongStream`], or a failure of work queued earlier.
    pub fn release(&mut self, stream: &Stream) -> Result<()> {
        self.check_stream(stream)?;
        if let Memory::Owned(_) = self.memory {
            stream.synchronize()?;
            self.memory = Memory::Owned(self.device.alloc(0)?);
        }
        Ok(())
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Where its memory begins, and its handle of this type.
    pub(super) fn parts(
        &mut self,
        kind: Option<TypeId>,
    ) -> (*mut c_void, Option<&mut (dyn Any + Send)>) {
        let address = self.memory.as_mut_ptr();
        let held = |(held, _): &&mut (TypeId, Box<dyn Any + Send>)| Some(*held) == kind;
        let handle = self.handles.iter_mut().find(held);
        (address, handle.map(|(_, handle)| &mut **handle))
    }

    pub(super) fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.device.expect("the stream", &stream.device())?;
        if self.stream != *stream {
            return Err(Error::WrongStream);
        }
        stream.check_thread()
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Workspace")
            .field("bytes", &self.bytes())
            .field("handles", &self.handles.len())
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
