//! A graph's edges with what annotates them: which may let a kernel begin early.
//!
//! cuda.h has these functions from 12.3 on, under names that older toolkits have with other
//! arguments, so they are declared here. An older driver lacks the symbols, which is
//! [`Missing`](loader::Missing) as always.

use core::ffi::c_void;

use crate::{CUgraph, CUresult, LIBRARY, loader};

/// A node of a graph.
pub type Node = *mut c_void;

/// `CUgraphEdgeData`; all zeros is an ordinary dependency.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeData {
    /// When the dependency is satisfied: 0 when the node before has ended.
    pub from_port: u8,
    /// Always 0.
    pub to_port: u8,
    /// 1 where the node after may begin early and waits by itself.
    pub kind: u8,
    /// Zeros.
    pub reserved: [u8; 5],
}

/// `cuGraphGetEdges_v2`.
///
/// # Errors
/// [`loader::Missing`].
///
/// # Safety
/// As C's: null, or room for `count` of each.
pub unsafe fn get(
    graph: CUgraph,
    from: *mut Node,
    to: *mut Node,
    data: *mut EdgeData,
    count: *mut usize,
) -> Result<CUresult, loader::Missing> {
    type Get =
        unsafe extern "C" fn(CUgraph, *mut Node, *mut Node, *mut EdgeData, *mut usize) -> CUresult;
    static SYMBOL: loader::Symbol = loader::Symbol::new(&LIBRARY, c"cuGraphGetEdges_v2");
    // SAFETY: cuda.h declares the function so, and the caller answers for the arguments.
    Ok(unsafe {
        let function: Get = core::mem::transmute(SYMBOL.address()?);
        function(graph, from, to, data, count)
    })
}

type Change =
    unsafe extern "C" fn(CUgraph, *const Node, *const Node, *const EdgeData, usize) -> CUresult;

/// `cuGraphRemoveDependencies_v2`.
///
/// # Errors
/// [`loader::Missing`].
///
/// # Safety
/// As C's: `count` of each.
pub unsafe fn remove(
    graph: CUgraph,
    from: *const Node,
    to: *const Node,
    data: *const EdgeData,
    count: usize,
) -> Result<CUresult, loader::Missing> {
    static SYMBOL: loader::Symbol = loader::Symbol::new(&LIBRARY, c"cuGraphRemoveDependencies_v2");
    // SAFETY: as in `get`.
    Ok(unsafe {
        let function: Change = core::mem::transmute(SYMBOL.address()?);
        function(graph, from, to, data, count)
    })
}

/// `cuGraphAddDependencies_v2`.
///
/// # Errors
/// [`loader::Missing`].
///
/// # Safety
/// As C's: `count` of each; without data they are ordinary.
pub unsafe fn add(
    graph: CUgraph,
    from: *const Node,
    to: *const Node,
    data: *const EdgeData,
    count: usize,
) -> Result<CUresult, loader::Missing> {
    static SYMBOL: loader::Symbol = loader::Symbol::new(&LIBRARY, c"cuGraphAddDependencies_v2");
    // SAFETY: as in `get`.
    Ok(unsafe {
        let function: Change = core::mem::transmute(SYMBOL.address()?);
        function(graph, from, to, data, count)
    })
}
