//! What is known when a mechanism is chosen.

/// Where the bytes are to land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Not told.
    #[default]
    Unknown,
    /// Memory that was written to before.
    Resident,
    /// Memory whose pages are not there yet, of the ordinary size.
    Fresh,
    /// The same, on huge pages.
    FreshHuge,
}

impl Destination {
    const ALL: [Self; 4] = [Self::Unknown, Self::Resident, Self::Fresh, Self::FreshHuge];

    pub(crate) fn from_word(word: u64) -> Self {
        Self::ALL.get(word as usize).copied().unwrap_or_default()
    }
}

/// What is known when a mechanism is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where the bytes land, as the receiver says.
    pub destination: Destination,
    /// The sender will write its data into [`Loan`](super::Loan)s.
    pub will_loan: bool,
    /// The two may use each other's memory; else why not.
    pub trusted: Option<String>,
    /// The size of most buffers.
    pub size: Option<u64>,
    /// There is a core for each side.
    pub free_core: bool,
}

impl Facts {
    /// For people: `from lent memory into memory used before`.
    pub fn ends(&self) -> String {
        let from = if self.will_loan { "lent memory" } else { "the sender's own memory" };
        let into = match self.destination {
            Destination::Unknown | Destination::Resident => "memory used before",
            Destination::Fresh => "new memory",
            Destination::FreshHuge => "new memory on huge pages",
        };
        format!("from {from} into {into}")
    }
}
