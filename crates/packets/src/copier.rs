//! The copy kernels, in the two forms in which the switch uses them: called through a pointer, or
//! inlined.

#[cfg(target_arch = "x86_64")]
use thalweg_kernels::cpu;
use thalweg_kernels::{CopyFn, KERNELS, inline};

/// A method to copy a packet.
pub trait PacketCopier {
    /// Copies `n` bytes.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `n` bytes, and they do not overlap.
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, n: usize);
}

/// A kernel from the table `KERNELS`, called through its function pointer.
#[derive(Clone, Copy)]
pub struct Called(pub CopyFn);

impl PacketCopier for Called {
    #[inline(always)]
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: the caller guarantees the contract of `PacketCopier::copy`. This CPU can run the
        // kernel, because `CopierChoice::all` and `CopierChoice::named` return only available
        // kernels.
        unsafe { (self.0)(dst, src, n) };
    }
}

/// The code that a compiler generates for a copy of unknown length: a call of the C library's memcpy.
#[derive(Clone, Copy)]
pub struct Library;

impl PacketCopier for Library {
    #[inline(always)]
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: the caller guarantees the contract of `PacketCopier::copy`.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, n) };
    }
}

/// The packet kernel, inlined into its caller, with vectors of type `V`.
#[derive(Clone, Copy)]
pub struct Inlined<V>(std::marker::PhantomData<V>);

impl<V> Inlined<V> {
    pub const fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<V: thalweg_kernels::Vector> PacketCopier for Inlined<V> {
    #[inline(always)]
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: the caller guarantees the contract of `PacketCopier::copy`.
        unsafe { inline::copy::<V>(dst, src, n) };
    }
}

/// A kernel by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopierChoice {
    /// The C library's memcpy, called directly.
    Library,
    /// A kernel from the table `KERNELS`, by its index; called through its pointer.
    Row(usize),
    /// The packet kernel, 16 bytes at a time.
    InlineSse2,
    /// The packet kernel, 32 bytes at a time.
    InlineAvx2,
    /// The packet kernel, 64 bytes at a time.
    InlineAvx512,
}

impl CopierChoice {
    /// Returns all kernels that this machine can run, the C library first.
    pub fn all() -> Vec<Self> {
        let mut all = Self::built();
        all.retain(|choice| choice.is_available());
        all
    }

    /// Returns all kernels of this build.
    fn built() -> Vec<Self> {
        let mut all = vec![Self::Library];
        // The table contains the C library too, as `libc`: here it is called through a pointer.
        all.extend((0..KERNELS.len()).map(Self::Row));
        if cfg!(target_arch = "x86_64") {
            all.extend([Self::InlineSse2, Self::InlineAvx2, Self::InlineAvx512]);
        }
        all
    }

    fn is_available(self) -> bool {
        match self {
            Self::Library => true,
            Self::Row(place) => (KERNELS[place].is_available)(),
            #[cfg(target_arch = "x86_64")]
            Self::InlineSse2 => true,
            #[cfg(target_arch = "x86_64")]
            Self::InlineAvx2 => cpu::has(cpu::AVX2),
            #[cfg(target_arch = "x86_64")]
            Self::InlineAvx512 => cpu::has(cpu::AVX2 | cpu::AVX512),
            #[cfg(not(target_arch = "x86_64"))]
            Self::InlineSse2 | Self::InlineAvx2 | Self::InlineAvx512 => false,
        }
    }

    /// Returns the name. Names of kernels from the table end with ` called`.
    pub fn name(self) -> String {
        match self {
            Self::Library => "libc".to_owned(),
            Self::Row(place) => format!("{} called", KERNELS[place].name),
            Self::InlineSse2 => "inline-sse2".to_owned(),
            Self::InlineAvx2 => "inline-avx2".to_owned(),
            Self::InlineAvx512 => "inline-avx512".to_owned(),
        }
    }

    /// Returns the kernel with this name. A kernel from the table, except `libc`, is also found
    /// without ` called`.
    pub fn named(name: &str) -> Result<Self, String> {
        let fits = |choice: &&Self| {
            choice.name() == name || (name != "libc" && choice.name() == format!("{name} called"))
        };
        let built = Self::built();
        let names = |all: Vec<Self>| {
            let names: Vec<String> = all.iter().map(|choice| choice.name()).collect();
            names.join(", ")
        };
        match built.iter().find(fits) {
            Some(choice) if choice.is_available() => Ok(*choice),
            Some(_) => Err(format!(
                "this processor cannot run the kernel {name}; it runs: {}",
                names(Self::all())
            )),
            None => Err(format!("unknown kernel {name:?}; known: {}", names(built))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_found_by_its_name() {
        for choice in CopierChoice::all() {
            assert_eq!(CopierChoice::named(&choice.name()), Ok(choice));
        }
        assert_eq!(CopierChoice::named("simple").unwrap().name(), "simple called");
        assert!(CopierChoice::named("memcpy2").unwrap_err().contains("libc"));
    }
}
