//! A few things by their keys, of which the one leaves that was not used the longest.

/// At most `N` of them. What is found is neither moved nor allocated.
pub(super) struct Recent<K, V, const N: usize> {
    /// Its room is taken once.
    entries: Vec<Entry<K, V>>,
    /// Where the last one was found.
    last: usize,
    /// Counts uses.
    now: u64,
}

struct Entry<K, V> {
    key: K,
    value: V,
    used: u64,
}

impl<K: PartialEq, V, const N: usize> Recent<K, V, N> {
    pub(super) fn new() -> Self {
        Recent {
            entries: Vec::with_capacity(N),
            last: 0,
            now: 0,
        }
    }

    /// The one of this key, made where it is not there. What cannot be made costs no other its place.
    pub(super) fn get<E>(
        &mut self,
        key: K,
        make: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<&V, E> {
        self.now += 1;
        self.last = match self.find(&key) {
            Some(at) => at,
            None => {
                let value = make(&key)?;
                self.put(key, value)
            }
        };
        let found = &mut self.entries[self.last];
        found.used = self.now;
        Ok(&found.value)
    }

    /// From the last one on: most uses are of the same again, or of the next one in turns.
    fn find(&self, key: &K) -> Option<usize> {
        let is = |at: &usize| self.entries[*at].key == *key;
        (self.last..self.entries.len()).chain(0..self.last).find(is)
    }

    /// In the place of the one that was not used the longest, where there is no other.
    fn put(&mut self, key: K, value: V) -> usize {
        let entry = Entry {
            key,
            value,
            used: self.now,
        };
        if self.entries.len() < N {
            self.entries.push(entry);
            return self.entries.len() - 1;
        }
        let ages = self.entries.iter().map(|entry| entry.used).enumerate();
        let (oldest, _) = ages.min_by_key(|(_, used)| *used).unwrap_or_default();
        self.entries[oldest] = entry;
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was made for these keys, one after another.
    fn made(recent: &mut Recent<u32, u32, 3>, keys: &[u32]) -> Vec<u32> {
        let mut made = Vec::new();
        for key in keys {
            let value = recent.get(*key, |key| {
                made.push(*key);
                Ok::<_, ()>(key * 10)
            });
            assert_eq!(value, Ok(&(key * 10)));
        }
        made
    }

    #[test]
    fn as_many_as_there_is_room_for_are_made_once() {
        let mut recent = Recent::new();
        assert_eq!(made(&mut recent, &[1, 2, 3]), [1, 2, 3]);
        let room = recent.entries.capacity();
        assert!(made(&mut recent, &[1, 2, 3, 3, 1, 2, 2, 3, 1]).is_empty());
        assert_eq!(recent.entries.capacity(), room);
    }

    #[test]
    fn the_one_that_was_not_used_the_longest_leaves() {
        let mut recent = Recent::new();
        made(&mut recent, &[1, 2, 3, 1]);
        assert_eq!(made(&mut recent, &[4, 1, 3, 4]), [4]);
        assert_eq!(made(&mut recent, &[2, 3, 4, 1]), [2, 1]);
    }

    #[test]
    fn what_cannot_be_made_leaves_the_others_there() {
        let mut recent = Recent::new();
        made(&mut recent, &[1, 2, 3]);
        assert_eq!(recent.get(4, |_| Err("refused")), Err("refused"));
        assert!(made(&mut recent, &[1, 2, 3]).is_empty());
        assert_eq!(made(&mut recent, &[4]), [4]);
    }

    #[test]
    fn nothing_is_there_at_first() {
        let mut recent = Recent::<u32, u32, 3>::new();
        assert_eq!(recent.get(0, |_| Err(())), Err(()));
        assert_eq!(made(&mut recent, &[0]), [0]);
    }
}
