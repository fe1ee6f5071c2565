//! The environment and the file through which the two sides of a trial speak.

/// The variable with the kernel for copies and moves, see [`crate::choice`].
pub const KERNEL: &str = "THALWEG_KERNEL";
/// The variable with the fill.
pub const FILL: &str = "THALWEG_FILL";
/// The variable that hides features of the processor from the kernels.
pub const CPU: &str = thalweg_kernels::cpu::VARIABLE;
/// The variable with the path of the file to count in; without it nothing is counted.
pub const COUNTS: &str = "THALWEG_TRIAL_COUNTS";

/// How long the file of counts is, in bytes. It is made of native 64-bit words: the head, then for
/// each kind of call and each class of sizes two words, calls and bytes.
pub const LEN: usize = 4096;
/// The first word of a file of counts, so that no other file is written over.
pub const MAGIC: u64 = u64::from_le_bytes(*b"tw-trial");

/// Head: the [`MAGIC`].
pub const MAGIC_AT: usize = 0;
/// Head: processes in which the object was started.
pub const PROCESSES_AT: usize = 1;
/// Head: those among them that run the kernels they were told.
pub const CHOSEN_AT: usize = 2;
/// Head: those in which the C library's own functions were not found.
pub const WITHOUT_LIBC_AT: usize = 3;
/// Words of the head.
pub const HEAD: usize = 8;

/// Kinds of calls that are counted apart.
pub const KINDS: [&str; 3] = ["memcpy", "memmove", "memset"];
/// Number of `memcpy` and `mempcpy` among [`KINDS`].
pub const COPY: usize = 0;
/// Number of `memmove`.
pub const MOVE: usize = 1;
/// Number of `memset`.
pub const SET: usize = 2;

/// Classes of sizes: nothing, and one for every power of two.
pub const CLASSES: usize = 65;

/// The class of a size: 0 for nothing, else the number of its binary digits.
pub const fn class(size: usize) -> usize {
    (usize::BITS - size.leading_zeros()) as usize
}

/// The word that counts calls of a kind in a class; the next one counts bytes.
pub const fn word(kind: usize, class: usize) -> usize {
    HEAD + (kind * CLASSES + class) * 2
}

const _: () = assert!(word(KINDS.len(), 0) * 8 <= LEN, "the words fit the file");
