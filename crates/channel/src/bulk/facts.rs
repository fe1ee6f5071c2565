//! The facts on which the choice of a mechanism depends.

/// Type of the destination memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Not specified.
    #[default]
    Unknown,
    /// Memory that was written before, so that its pages are resident.
    Resident,
    /// Memory without resident pages, with pages of the ordinary size.
    Fresh,
    /// Memory without resident pages, on huge pages.
    FreshHuge,
}

impl Destination {
    const ALL: [Self; 4] = [Self::Unknown, Self::Resident, Self::Fresh, Self::FreshHuge];

    pub(crate) fn from_word(word: u64) -> Self {
        Self::ALL.get(word as usize).copied().unwrap_or_default()
    }
}

/// The facts on which the choice of a mechanism depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Type of the destination, as reported by the receiver.
    pub destination: Destination,
    /// `true` if the sender will write its data into [`Loan`](super::Loan)s.
    pub will_loan: bool,
    /// `None` if both sides may access each other's memory, otherwise the reason why not.
    pub trusted: Option<String>,
    /// Size of most buffers, in bytes.
    pub size: Option<u64>,
    /// `true` if each side has its own core.
    pub free_core: bool,
}

impl Facts {
    /// Describes source and destination for users: `from lent memory into memory used before`.
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
