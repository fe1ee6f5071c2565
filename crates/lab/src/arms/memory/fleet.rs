//! Published size distributions of memory calls, from studies/data/fleet-sizes.txt. They are embedded, so that a
//! study does not need the file.

use thalweg_measure::stats::Random;

const DATA: &str = include_str!("fleet-sizes.txt");

/// The sizes of the calls of a program, and the alignments of their pointers.
#[derive(Clone, Debug)]
pub struct Distribution {
    sizes: SizeTable,
    alignments: SizeTable,
}

/// Values with their cumulative weights.
#[derive(Clone, Debug, Default)]
struct SizeTable(Vec<(usize, u64)>);

impl Distribution {
    pub fn names() -> impl Iterator<Item = &'static str> {
        DATA.lines().filter(|line| !line.starts_with([' ', '#']))
    }

    /// Returns the distribution with this name; the error lists the known ones.
    pub fn named(name: &str) -> Result<Self, String> {
        if !Self::names().any(|known| known == name) {
            let all: Vec<&str> = Self::names().collect();
            return Err(format!("unknown distribution {name:?}; known: {}", all.join(", ")));
        }
        let mut lines = DATA.lines().skip_while(|line| *line != name).skip(1);
        let mut own =
            lines.by_ref().take_while(|line| line.starts_with(' ')).flat_map(str::split_whitespace);
        let (mut sizes, mut alignments) = (SizeTable::default(), SizeTable::default());
        let mut table = &mut sizes;
        for word in own.by_ref() {
            match word.split_once(':') {
                Some((value, weight)) => table.add(value, weight)?,
                None if word == "alignments" => table = &mut alignments,
                None => table = &mut sizes,
            }
        }
        Ok(Self { sizes, alignments })
    }

    /// Returns the distribution without sizes above `most`.
    pub fn upto(mut self, most: usize) -> Self {
        self.sizes.0.retain(|(size, _)| *size <= most);
        self
    }

    /// Returns a random size; `None` if all sizes are 0.
    pub fn size(&self, random: &mut Random) -> Option<usize> {
        self.sizes.0.last().filter(|(largest, _)| *largest > 0)?;
        self.sizes.draw(random)
    }

    /// Returns a random pointer alignment, at least 1.
    pub fn alignment(&self, random: &mut Random) -> usize {
        self.alignments.draw(random).unwrap_or(1).max(1)
    }
}

impl SizeTable {
    fn add(&mut self, value: &str, weight: &str) -> Result<(), String> {
        let bad =
            |_| format!("fleet-sizes.txt: {value}:{weight}: expected two integers, VALUE:WEIGHT");
        let sum = self.0.last().map_or(0, |(_, sum)| *sum);
        self.0.push((value.parse().map_err(bad)?, sum + weight.parse::<u64>().map_err(bad)?));
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> Option<usize> {
        let all = self.0.last()?.1;
        let at = random.below(usize::try_from(all).ok()?) as u64;
        let place = self.0.partition_point(|(_, sum)| *sum <= at);
        self.0.get(place).map(|(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_is_read_whole_and_drawn_from_by_its_weights() {
        assert_eq!(Distribution::names().count(), 23);
        for name in Distribution::names() {
            let found = Distribution::named(name).unwrap();
            for (table, all) in [(&found.sizes, 100_000_000_u64), (&found.alignments, 1_000_000)] {
                let sum = table.0.last().unwrap().1;
                assert!(sum.abs_diff(all) < all / 1000, "{name}: {sum}");
                assert!(table.0.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{name}");
            }
        }
        let fleet = Distribution::named("memcpy-fleet").unwrap();
        let mut random = Random::new(1);
        let sizes: Vec<usize> = (0..200_000).map(|_| fleet.size(&mut random).unwrap()).collect();
        // The published median is 10 bytes, and 90 % of the sizes are at most 75 bytes.
        let below = |size: usize| sizes.iter().filter(|s| **s < size).count();
        assert!((80_000..120_000).contains(&below(10)), "{}", below(10));
        assert!((175_000..190_000).contains(&below(76)), "{}", below(76));
        assert!((0..1000).all(|_| fleet.alignment(&mut random).is_power_of_two()));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_large_sizes_can_be_left_out() {
        let error = Distribution::named("memcpy").unwrap_err();
        assert!(error.contains("memcpy-fleet") && error.contains("memset-8"), "{error}");
        let short = Distribution::named("memcpy-fleet").unwrap().upto(64);
        let mut random = Random::new(2);
        assert!((0..10_000).all(|_| short.size(&mut random).unwrap() <= 64));
        assert!(short.upto(0).size(&mut random).is_none(), "nothing would never be a batch");
    }
}
