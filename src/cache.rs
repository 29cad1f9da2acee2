//! Ready convolutions, made at first use and kept: for whoever learns a layer's shapes only when it
//! is called, as a framework does.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Conv, Device, Pick, Problem, Result};

/// Ready convolutions, one per device, problem and pick, made at first use.
///
/// It is bounded: where there are more than [`limit`](Self::limit), those leave that were not asked
/// for the longest. Any number of threads share one. Of those that ask for the same convolution one
/// makes it and the others wait for it; nobody waits for another convolution. An error is the
/// asker's alone: the next one tries again.
///
/// What a [`Pick`] comes to is not asked again while the convolution is kept: a library that is
/// installed, or a tuning result that is written meanwhile, serves after [`clear`](Self::clear).
///
/// ```
/// use convforge::{ConvCache, Device, Filter, Operands, Pick, Problem, Workspace};
///
/// let device = Device::cpu();
/// let stream = device.stream()?;
/// let mut workspace = Workspace::new(&stream)?;
/// let cache = ConvCache::default();
/// let w = device.upload(&[0.5f32; 8 * 3 * 3 * 3])?;
/// let filter = Filter::new(); // lives beside its weights
/// for images in [1, 4, 1] {
///     let text = format!("mb{images}ic3ih8oc8oh8kh3ph1");
///     let problem: Problem = text.parse()?;
///     let conv = cache.get(&device, &problem, &Pick::default())?;
///     workspace.reserve(&conv, &stream)?;
///     let packed = filter.packed(&conv, &w, &stream)?;
///     let x = device.upload(&vec![1f32; problem.x_len()])?;
///     let mut y = device.alloc(problem.y_len())?;
///     let operands = Operands::new(&x, &w, &mut y).packed(packed.as_deref());
///     conv.run_with(operands, &mut workspace, &stream)?;
///     assert_eq!(y.to_vec(&stream)?[9], 13.5);
/// }
/// assert_eq!(cache.len(), 2);
/// # Ok::<(), convforge::Error>(())
/// ```
pub struct ConvCache {
    limit: usize,
    table: Mutex<Table>,
}

type Key = (Device, Problem, Pick);

/// Where one convolution is, or will be. Its lock is held while it is made, so that those wait who
/// want the same one; the table's never is.
type Place = Mutex<Option<Arc<Conv>>>;

#[derive(Default)]
struct Table {
    slots: HashMap<Key, Slot>,
    /// Counts the times that anything was asked for.
    now: u64,
}

struct Slot {
    place: Arc<Place>,
    asked: u64,
}

impl ConvCache {
    /// What [`default`](Self::default) keeps: 512 convolutions, a few deep networks at a few batch
    /// sizes. One takes a few kilobytes beside what its library keeps for it; packed filters and
    /// workspaces are not in it.
    pub const DEFAULT_LIMIT: usize = 512;

    /// An empty one that keeps at most so many convolutions, and at least one; on top come those
    /// that threads make or take at this moment.
    pub fn new(limit: usize) -> Self {
        ConvCache {
            limit: limit.max(1),
            table: Mutex::default(),
        }
    }

    /// The convolution, as [`Conv::new`] makes it.
    ///
    /// # Errors
    /// As [`Conv::new`]; they are not kept.
    pub fn get(&self, device: &Device, problem: &Problem, pick: &Pick) -> Result<Arc<Conv>> {
        let key = (device.clone(), problem.clone(), pick.clone());
        self.get_or_make(key, || Conv::new(device, problem, pick))
    }

    fn get_or_make(&self, key: Key, make: impl FnOnce() -> Result<Conv>) -> Result<Arc<Conv>> {
        let place = lock(&self.table).place(&key);
        let mut kept = lock(&place);
        if let Some(conv) = &*kept {
            return Ok(conv.clone());
        }
        let made = make().map(Arc::new);
        *kept = made.as_ref().ok().cloned();
        drop(kept);
        let gone = match made {
            Ok(_) => {
                drop(place);
                lock(&self.table).shrink(&key, self.limit)
            }
            Err(_) => lock(&self.table).forget(&key, &place),
        };
        // Dropping a convolution may take a while, so it is done with the table unlocked.
        drop(gone);
        made
    }

    /// How many convolutions it keeps, those included that are being made.
    pub fn len(&self) -> usize {
        lock(&self.table).slots.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many it keeps at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Forgets all; who holds one goes on with it.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut lock(&self.table).slots);
        drop(gone);
    }
}

impl Default for ConvCache {
    fn default() -> Self {
        ConvCache::new(ConvCache::DEFAULT_LIMIT)
    }
}

impl Table {
    /// The place of this key, which from now on was the last one asked for.
    fn place(&mut self, key: &Key) -> Arc<Place> {
        self.now += 1;
        let asked = self.now;
        if let Some(slot) = self.slots.get_mut(key) {
            slot.asked = asked;
            return slot.place.clone();
        }
        let place = Arc::default();
        let slot = Slot {
            place: Arc::clone(&place),
            asked,
        };
        self.slots.insert(key.clone(), slot);
        place
    }

    /// Takes out what is over the limit, now that this one was made. Places that someone is at do
    /// not count and stay, so that nobody makes a second one beside him.
    fn shrink(&mut self, made: &Key, limit: usize) -> Vec<Slot> {
        self.now += 1;
        if let Some(slot) = self.slots.get_mut(made) {
            slot.asked = self.now;
        }
        let idle = self.slots.iter().filter(|(_, slot)| !slot.busy());
        let mut idle: Vec<(u64, Key)> = idle.map(|(key, slot)| (slot.asked, key.clone())).collect();
        idle.sort_unstable_by_key(|(asked, _)| *asked);
        idle.truncate(idle.len().saturating_sub(limit));
        let oldest = idle.iter();
        oldest
            .filter_map(|(_, key)| self.slots.remove(key))
            .collect()
    }

    /// Takes out a place where nothing was made, unless others wait there to try it themselves.
    fn forget(&mut self, key: &Key, place: &Arc<Place>) -> Vec<Slot> {
        let same = |slot: &Slot| Arc::ptr_eq(&slot.place, place);
        let ours = self.slots.get(key).is_some_and(same);
        // One is the table's, one the caller's; more are given out by the table alone, so that nobody holds
        // its lock then. One who waited may have made it and gone.
        let alone = || Arc::strong_count(place) == 2 && lock(place).is_none();
        match ours && alone() {
            true => self.slots.remove(key).into_iter().collect(),
            false => Vec::new(),
        }
    }
}

impl Slot {
    /// Whether someone makes its convolution, waits for it or takes it.
    fn busy(&self) -> bool {
        Arc::strong_count(&self.place) > 1
    }
}

/// Whoever panics while he makes a convolution leaves none behind, and the table as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ConvCache {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("ConvCache")
            .field("len", &self.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
