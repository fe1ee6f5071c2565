//! Initialisation, once per process and before main: reads the choice, sets the functions and starts to count.

use core::sync::atomic::{AtomicUsize, Ordering};

use thalweg_kernels::{CopyFn, FILLS, FillFn, KERNELS, cpu, tuned};

use crate::choice::{self, ChoicePart, LIBC, MOST, same};
use crate::next::{self, NextSymbols};
use crate::{counting, dispatch, early, environ, layout};

/// A constructor: the loader calls it after all relocations and before any other thread runs.
#[cfg(thalweg_object)]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Addresses of the C library's functions. 0 if they were not found.
static LIBC_COPY: AtomicUsize = AtomicUsize::new(0);
static LIBC_MOVE: AtomicUsize = AtomicUsize::new(0);
static LIBC_FILL: AtomicUsize = AtomicUsize::new(0);

extern "C" fn start() {
    let mut path = [0_u8; 4096];
    let room = path.len() - 1;
    // The last byte remains zero and terminates the path.
    let named = path.get_mut(..room).and_then(|path| environ::value(layout::COUNTS, path));
    // If the file has no room for counts, it stays unchanged, and its reader can detect that.
    let len = named.map(|path| path.len());
    let _ = len.and_then(|len| path.get(..=len)).is_some_and(counting::open);
    match next::find() {
        Some(next) => keep(next),
        None => counting::add(layout::WITHOUT_LIBC_AT, 1),
    }
    let mut text = [0_u8; 512];
    // Hides CPU features before any kernel is checked for availability.
    let known = environ::value(layout::CPU, &mut text).is_none_or(|list| cpu::hide(list));
    let copies = environ::value(layout::KERNEL, &mut text).is_some_and(|text| set_copies(text));
    // Without the variable, fills use libc.
    let fills = match environ::value(layout::FILL, &mut text) {
        Some(text) => set_fills(text),
        None => set_fills(LIBC.as_bytes()),
    };
    if known && copies && fills {
        counting::add(layout::CHOSEN_AT, 1);
    } else {
        set_copies(LIBC.as_bytes());
        set_fills(LIBC.as_bytes());
    }
    // Counts the process last: a process that is killed earlier must not count as one that rejected its kernels.
    counting::add(layout::PROCESSES_AT, 1);
    dispatch::publish();
}

fn keep(next: NextSymbols) {
    LIBC_COPY.store(next.copy, Ordering::Relaxed);
    LIBC_MOVE.store(next.move_, Ordering::Relaxed);
    LIBC_FILL.store(next.fill, Ordering::Relaxed);
}

/// Returns a function for each step. Returns `None` if the text is invalid or names a kernel that cannot run.
fn resolve<F: Copy>(
    text: &[u8],
    named: fn(&[u8]) -> Option<F>,
) -> Option<[Option<(usize, F)>; MOST]> {
    let mut steps = [None; MOST];
    for (step, ChoicePart { upto, name }) in steps.iter_mut().zip(choice::parts(text)?) {
        *step = Some((upto, named(name)?));
    }
    Some(steps)
}

fn set_copies(text: &[u8]) -> bool {
    let Some(steps) = resolve(text, copy_named) else { return false };
    for (place, (upto, [copy, move_])) in steps.into_iter().flatten().enumerate() {
        dispatch::COPIES.set(place, upto, copy as *mut ());
        dispatch::MOVES.set(place, upto, move_ as *mut ());
    }
    true
}

fn set_fills(text: &[u8]) -> bool {
    let Some(steps) = resolve(text, fill_named) else { return false };
    for (place, (upto, fill)) in steps.into_iter().flatten().enumerate() {
        dispatch::FILLS.set(place, upto, fill as *mut ());
    }
    true
}

/// Returns the functions that copy and move under this name. If a kernel cannot move overlapping memory, libc's
/// memmove does.
fn copy_named(name: &[u8]) -> Option<[CopyFn; 2]> {
    if same(name, LIBC.as_bytes()) {
        return Some([libc_copy(&LIBC_COPY), libc_copy(&LIBC_MOVE)]);
    }
    let row = KERNELS.iter().find(|row| same(row.name.as_bytes(), name))?;
    // In this process, `tuned` has no profile and so no size bands. A choice must list its size bands
    // explicitly.
    let is_whole = !same(name, tuned::NAME.as_bytes());
    let move_ = || row.move_.unwrap_or_else(|| libc_copy(&LIBC_MOVE));
    (is_whole && (row.is_available)()).then(|| [row.copy, move_()])
}

fn fill_named(name: &[u8]) -> Option<FillFn> {
    if same(name, LIBC.as_bytes()) {
        return Some(libc_fill());
    }
    let row = FILLS.iter().find(|row| same(row.name.as_bytes(), name))?;
    let is_whole = !same(name, tuned::NAME.as_bytes());
    (is_whole && (row.is_available)()).then_some(row.fill)
}

/// Returns the C library's function at an address from `next`, or a function of this object if it was not found.
fn libc_copy(address: &AtomicUsize) -> CopyFn {
    let address = address.load(Ordering::Relaxed);
    if address == 0 {
        return early::move_;
    }
    let function: *const () = core::ptr::with_exposed_provenance(address);
    // SAFETY: `next` looked up memcpy and memmove, which have this type.
    unsafe { core::mem::transmute::<*const (), CopyFn>(function) }
}

/// Like [`libc_copy`], for fills.
fn libc_fill() -> FillFn {
    let address = LIBC_FILL.load(Ordering::Relaxed);
    if address == 0 {
        return early::fill;
    }
    let function: *const () = core::ptr::with_exposed_provenance(address);
    // SAFETY: `next` looked up memset, which has this type.
    unsafe { core::mem::transmute::<*const (), FillFn>(function) }
}
