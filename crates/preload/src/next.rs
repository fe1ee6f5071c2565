//! Finds the C library's functions, which the exports of this object hide. The C library's functions serve size bands for which
//! libc is chosen, and operations that a kernel does not support.
//!
//! This object cannot call `dlsym`, because it uses no symbol of another object. Like a debugger, this module finds the loader's
//! list of objects through the program's dynamic section, and searches the symbol tables of the objects.

use core::ptr;

use crate::choice::same;
use crate::exports;
use crate::raw::{File, O_RDONLY};

/// The addresses of the C library's functions.
#[derive(Clone, Copy)]
pub struct NextSymbols {
    /// `memcpy`.
    pub copy: usize,
    /// `memmove`.
    pub move_: usize,
    /// `memset`.
    pub fill: usize,
}

const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;
const AT_HWCAP: usize = 16;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_DEBUG: usize = 21;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
/// Version flag of a symbol that only programs linked against an older version use.
const HIDDEN: u16 = 0x8000;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// More objects, or entries of a dynamic section, than a valid process has.
const MANY: usize = 1 << 16;

/// Looks up the functions. A constructor of this object calls it, so all objects are already relocated.
pub fn find() -> Option<NextSymbols> {
    let auxiliary = Auxiliary::read()?;
    let first = loaded(&auxiliary)?;
    let look = |name: &[u8], own: usize| lookup(first, name, own, auxiliary.hwcap);
    Some(NextSymbols {
        copy: look(b"memcpy", exports::memcpy as *const () as usize)?,
        move_: look(b"memmove", exports::memmove as *const () as usize)?,
        fill: look(b"memset", exports::memset as *const () as usize)?,
    })
}

/// Values of the auxiliary vector, which the kernel passes to the loader.
struct Auxiliary {
    headers: usize,
    count: usize,
    hwcap: usize,
}

impl Auxiliary {
    fn read() -> Option<Self> {
        let mut bytes = [0_u8; 1024];
        let mut file = File::open(b"/proc/self/auxv\0", O_RDONLY)?;
        let len = file.read(&mut bytes);
        let mut found = Self { headers: 0, count: 0, hwcap: 0 };
        let (words, _) = bytes.get(..len)?.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        for [key, value] in pairs {
            let value = usize::from_ne_bytes(*value);
            match usize::from_ne_bytes(*key) {
                AT_PHDR => found.headers = value,
                AT_PHNUM => found.count = value,
                AT_HWCAP => found.hwcap = value,
                _ => {}
            }
        }
        (found.headers != 0).then_some(found)
    }
}

/// Reads a value from this process's memory.
///
/// # Safety
/// The loader or the kernel has stored a `T` there and does not change it.
unsafe fn at<T: Copy>(address: usize) -> T {
    let place: *const T = ptr::with_exposed_provenance(address);
    // SAFETY: guaranteed by the caller.
    unsafe { place.read_unaligned() }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    _flags: u32,
    _offset: u64,
    address: usize,
    _rest: [u64; 4],
}

/// The loader's record of one object: `link_map` in link.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct LinkMap {
    base: usize,
    _name: usize,
    dynamic: usize,
    next: usize,
    _before: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    _other: u8,
    section: u16,
    value: usize,
    _size: u64,
}

/// Returns the address of the first [`LinkMap`].
fn loaded(auxiliary: &Auxiliary) -> Option<usize> {
    let (mut base, mut dynamic) = (None, None);
    for n in 0..auxiliary.count.min(MANY) {
        // SAFETY: AT_PHNUM headers lie at AT_PHDR.
        let header: ProgramHeader =
            unsafe { at(auxiliary.headers + n * size_of::<ProgramHeader>()) };
        match header.kind {
            PT_PHDR => base = Some(auxiliary.headers.wrapping_sub(header.address)),
            PT_DYNAMIC => dynamic = Some(header.address),
            _ => {}
        }
    }
    // In a program that was started as an argument of the loader, these are the headers of the loader, which has no PT_PHDR.
    let debug = entry(base?.wrapping_add(dynamic?), DT_DEBUG).filter(|debug| *debug != 0)?;
    // SAFETY: the loader stores the address of its `r_debug` there before any constructor runs. The list is its second member,
    // after a padded int.
    let first: usize = unsafe { at(debug + size_of::<usize>()) };
    Some(first)
}

/// Returns an entry of a dynamic section.
fn entry(dynamic: usize, wanted: usize) -> Option<usize> {
    for n in 0..MANY {
        // SAFETY: entries are pairs of words, terminated by a zero tag, and no tag so far was zero.
        let [tag, value]: [usize; 2] = unsafe { at(dynamic + n * 16) };
        if tag == wanted {
            return Some(value);
        }
        if tag == 0 {
            break;
        }
    }
    None
}

/// Returns the function with this name in the first object that defines it after this object. The function of this object is at
/// `own`.
fn lookup(first: usize, name: &[u8], own: usize, hwcap: usize) -> Option<usize> {
    let (mut link_at, mut passed) = (first, false);
    for _ in 0..MANY {
        if link_at == 0 {
            break;
        }
        // SAFETY: a member of the loader's list, which does not change while constructors run.
        let link: LinkMap = unsafe { at(link_at) };
        if let Some(symbol) = symbol(&link, name) {
            let address = link.base.wrapping_add(symbol.value);
            if address == own {
                passed = true;
            } else if passed {
                return resolve(address, symbol.info & 0xf, hwcap);
            }
        }
        link_at = link.next;
    }
    None
}

/// Returns the address, or the result of its IFUNC resolver.
fn resolve(address: usize, kind: u8, hwcap: usize) -> Option<usize> {
    match kind {
        STT_FUNC => Some(address),
        STT_GNU_IFUNC => {
            type Resolver = unsafe extern "C" fn(usize, usize) -> usize;
            let resolver: *const () = ptr::with_exposed_provenance(address);
            // SAFETY: the symbol type declares that a resolver is at this address.
            let resolver = unsafe { core::mem::transmute::<*const (), Resolver>(resolver) };
            // SAFETY: every object is relocated. On x86-64 a resolver takes no arguments and ignores these. On aarch64 it takes
            // the CPU's capabilities. Their flag for a second argument is clear, so it does not read that argument.
            Some(unsafe { resolver(hwcap, 0) })
        }
        _ => None,
    }
}

/// Returns a defined symbol of an object, found through its GNU hash table.
fn symbol(link: &LinkMap, name: &[u8]) -> Option<Symbol> {
    // glibc has relocated these addresses, except in the vDSO; musl leaves them unrelocated.
    let table = |tag| {
        let address = entry(link.dynamic, tag)?;
        Some(if address < link.base { address + link.base } else { address })
    };
    let (hashes, symbols) = (table(DT_GNU_HASH)?, table(DT_SYMTAB)?);
    let (strings, versions) = (table(DT_STRTAB)?, table(DT_VERSYM));
    // SAFETY: the head of a GNU hash table.
    let [buckets, least, blooms, _]: [u32; 4] = unsafe { at(hashes) };
    let hash = name.iter().fold(5381_u32, |h, c| h.wrapping_mul(33).wrapping_add(u32::from(*c)));
    let bucket_table = hashes + 16 + blooms as usize * 8;
    let bucket = hash.checked_rem(buckets)?;
    // SAFETY: a bucket of the table.
    let mut index: u32 = unsafe { at(bucket_table + bucket as usize * 4) };
    if index < least {
        return None;
    }
    let chain = bucket_table + buckets as usize * 4;
    let last = index.saturating_add(MANY as u32);
    while index < last {
        // SAFETY: the chain continues until a hash with the lowest bit set.
        let other: u32 = unsafe { at(chain + (index - least) as usize * 4) };
        if other | 1 == hash | 1 {
            // SAFETY: a symbol of the hash table.
            let found: Symbol = unsafe { at(symbols + index as usize * size_of::<Symbol>()) };
            // SAFETY: every symbol has a version entry.
            let version: u16 = versions.map_or(0, |v| unsafe { at(v + index as usize * 2) });
            let is_current = found.section != 0 && version & HIDDEN == 0;
            if is_current && is_named(strings + found.name as usize, name) {
                return Some(found);
            }
        }
        if other & 1 == 1 {
            break;
        }
        index += 1;
    }
    None
}

/// Returns `true` if these bytes, followed by a zero, are at the address.
fn is_named(address: usize, name: &[u8]) -> bool {
    let mut read = [0_u8; 16];
    for (n, into) in read.iter_mut().enumerate().take(name.len() + 1) {
        // SAFETY: no zero was read so far, so the string continues.
        *into = unsafe { at(address + n) };
        if *into == 0 {
            return n == name.len() && same(read.get(..n).unwrap_or_default(), name);
        }
    }
    false
}
