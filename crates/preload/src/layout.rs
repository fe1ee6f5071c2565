//! The environment variables and the file through which `thalweg trial` and the object communicate.

/// Variable with the kernel for copies and moves; see [`crate::choice`].
pub const KERNEL: &str = "THALWEG_KERNEL";
/// Variable with the kernel for fills.
pub const FILL: &str = "THALWEG_FILL";
/// Variable that hides CPU features from the kernels.
pub const CPU: &str = thalweg_kernels::cpu::VARIABLE;
/// Variable with the path of the file of counts. Without it nothing is counted.
pub const COUNTS: &str = "THALWEG_TRIAL_COUNTS";

/// Size of the file of counts, in bytes. It consists of native 64-bit words: a head, then two words (calls and bytes) for each
/// kind of call and each size class.
pub const LEN: usize = 4096;
/// The first word of a file of counts, so that no other file is overwritten.
pub const MAGIC: u64 = u64::from_le_bytes(*b"tw-trial");

/// Head: the [`MAGIC`].
pub const MAGIC_AT: usize = 0;
/// Head: number of processes that started the object.
pub const PROCESSES_AT: usize = 1;
/// Head: number of these processes that use the requested kernels.
pub const CHOSEN_AT: usize = 2;
/// Head: number of these processes in which the C library's functions were not found.
pub const WITHOUT_LIBC_AT: usize = 3;
/// Size of the head, in words.
pub const HEAD: usize = 8;

/// Kinds of calls that are counted separately.
pub const KINDS: [&str; 3] = ["memcpy", "memmove", "memset"];
/// Index of `memcpy` and `mempcpy` in [`KINDS`].
pub const COPY: usize = 0;
/// Index of `memmove` in [`KINDS`].
pub const MOVE: usize = 1;
/// Index of `memset` in [`KINDS`].
pub const SET: usize = 2;

/// Number of size classes: one for size 0, and one per power of two.
pub const CLASSES: usize = 65;

/// Returns the class of a size: 0 for size 0, otherwise its number of binary digits.
pub const fn class(size: usize) -> usize {
    (usize::BITS - size.leading_zeros()) as usize
}

/// Returns the index of the word that counts calls. The next word counts bytes.
pub const fn word(kind: usize, class: usize) -> usize {
    HEAD + (kind * CLASSES + class) * 2
}

const _: () = assert!(word(KINDS.len(), 0) * 8 <= LEN, "the words fit the file");
