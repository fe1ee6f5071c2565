//! A set of task numbers.

/// One bit for each task.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Creates an empty set for `len` tasks.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], count: 0 }
    }

    /// Returns `true` if the set contains a number; `false` for a number out of range.
    pub fn has(&self, n: usize) -> bool {
        self.words.get(n / 64).is_some_and(|word| word & 1 << (n % 64) != 0)
    }

    /// Adds a number. Returns `false` if the set already contains it or it is out of range.
    pub fn add(&mut self, n: usize) -> bool {
        let Some(word) = self.words.get_mut(n / 64) else { return false };
        let is_new = *word & 1 << (n % 64) == 0;
        *word |= 1 << (n % 64);
        self.count += usize::from(is_new);
        is_new
    }

    /// Returns how many numbers the set contains.
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_once_and_strange_ones_not_at_all() {
        let mut bits = Bits::new(65);
        assert!(bits.add(64) && !bits.add(64) && bits.add(0));
        assert!(!bits.add(1000) && !bits.has(1000) && !bits.has(1));
        assert!(bits.has(64) && bits.has(0));
        assert_eq!(bits.count(), 2);
    }
}
