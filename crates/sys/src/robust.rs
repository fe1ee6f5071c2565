//! Words in shared memory that the kernel marks when this process ends for any reason.
//!
//! The kernel keeps a *robust list* per thread (get_robust_list(2)). When the thread ends, the
//! kernel sets `FUTEX_OWNER_DIED` in every word on its list and wakes a waiter. A thread may end
//! before its process does. The words are therefore on the list of a helper thread that lives as
//! long as the process. That thread has a list head of its own. The C library's list heads of other
//! threads, which serve robust mutexes, are not changed.

use crate::Errno;
use crate::futex::WAITERS;
use crate::helper;
use crate::io::last_errno;
use crate::per_process::PerProcess;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Words per thread. The kernel marks at most 2048 entries of a list (ROBUST_LIST_LIMIT), so more
/// words need another thread.
const MOST_NODES: usize = 1024;

/// A word with its link in the list, as stored in shared memory: 16 bytes.
#[repr(C)]
#[derive(Debug)]
pub struct RobustNode {
    /// The helper thread's id and `FUTEX_WAITERS` while the process lives, `FUTEX_OWNER_DIED`
    /// afterwards; 0 if the node is not on the list.
    pub word: AtomicU32,
    spare: AtomicU32,
    /// An address in this process. It has no meaning in other processes.
    next: AtomicPtr<RobustNode>,
}

const _: () =
    assert!(size_of::<RobustNode>() == 16, "the format says so; a 64-bit target is needed");

/// `struct robust_list_head`. Entries point to the `next` field of a node.
#[repr(C)]
struct RobustHead {
    next: AtomicPtr<RobustNode>,
    offset: libc::c_long,
    pending: AtomicPtr<RobustNode>,
}

struct Thread {
    head: &'static RobustHead,
    tid: u32,
    /// The nodes in the order in which they were added. The kernel's list has the reverse order.
    nodes: Vec<NonNull<RobustNode>>,
}

// SAFETY: the addresses are used only under the lock of the pool.
unsafe impl Send for Thread {}

static POOL: PerProcess<Mutex<Vec<Thread>>> = PerProcess::new();

/// A node on the list. Dropping this value in the process that created it removes the node.
#[derive(Debug)]
pub struct Enlisted {
    node: NonNull<RobustNode>,
    process: u32,
}

// SAFETY: the node consists of atomics, and the list is changed only under a lock.
unsafe impl Send for Enlisted {}
// SAFETY: &Enlisted allows no operation.
unsafe impl Sync for Enlisted {}

/// Adds a node to the list of a thread that lives as long as this process, and stores that thread's
/// id in the word. EAGAIN or EPERM if no thread can be started.
///
/// # Safety
///
/// The node must stay mapped for writing until [`Enlisted`] is dropped, must not be enlisted
/// already, and must not be writable by another process.
pub unsafe fn enlist(node: NonNull<RobustNode>) -> Result<Enlisted, Errno> {
    let pool = POOL.here();
    let mut threads = pool.value.lock().unwrap_or_else(PoisonError::into_inner);
    if threads.last().is_none_or(|thread| thread.nodes.len() >= MOST_NODES) {
        threads.push(Thread::start()?);
    }
    let thread = threads.last_mut().expect("the list has at least one thread");
    // SAFETY: guaranteed by the caller.
    let entry = unsafe { node.as_ref() };
    entry.next.store(thread.head.next.load(Ordering::Relaxed), Ordering::Relaxed);
    entry.word.store(thread.tid | WAITERS, Ordering::Release);
    // The process may be killed at any moment, so the list must always be consistent. The node is
    // therefore complete before it becomes reachable.
    thread.head.next.store(entry_of(node), Ordering::Release);
    thread.nodes.push(node);
    Ok(Enlisted { node, process: pool.process })
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let pool = POOL.here();
        if self.process != pool.process {
            return;
        }
        let mut threads = pool.value.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in &mut *threads {
            let Some(at) = thread.nodes.iter().position(|node| *node == self.node) else {
                continue;
            };
            let before = match thread.nodes.get(at + 1) {
                // SAFETY: nodes on the list are mapped, by `enlist`'s contract.
                Some(node) => &unsafe { node.as_ref() }.next,
                None => &thread.head.next,
            };
            // SAFETY: as above.
            let entry = unsafe { self.node.as_ref() };
            before.store(entry.next.load(Ordering::Relaxed), Ordering::Release);
            entry.word.store(0, Ordering::Release);
            thread.nodes.remove(at);
            return;
        }
    }
}

/// Returns the address that the kernel uses for an entry: the address of the node's `next`.
fn entry_of(node: NonNull<RobustNode>) -> *mut RobustNode {
    node.as_ptr().wrapping_byte_add(std::mem::offset_of!(RobustNode, next))
}

impl Thread {
    fn start() -> Result<Self, Errno> {
        let head: &'static RobustHead = Box::leak(Box::new(RobustHead {
            next: AtomicPtr::new(ptr::null_mut()),
            offset: std::mem::offset_of!(RobustNode, word) as libc::c_long
                - std::mem::offset_of!(RobustNode, next) as libc::c_long,
            pending: AtomicPtr::new(ptr::null_mut()),
        }));
        // An empty list points to its own head.
        head.next.store(ptr::from_ref(head).cast_mut().cast(), Ordering::Relaxed);
        let (tell, told) = mpsc::sync_channel(1);
        let started = helper::start("thalweg-alive", move || {
            let registered = register(head);
            let tid = helper::this_thread();
            if tell.send(registered.map(|()| tid)).is_err() || registered.is_err() {
                return;
            }
            helper::outlive_the_program();
        });
        started?;
        let tid = told.recv().map_err(|_| Errno::AGAIN)??;
        Ok(Self { head, tid, nodes: Vec::new() })
    }
}

fn register(head: &'static RobustHead) -> Result<(), Errno> {
    let len = size_of::<RobustHead>();
    // SAFETY: the head lives for ever. This call replaces the C library's list of this thread, and
    // the thread never locks a mutex that needs that list.
    let answer = unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::from_ref(head), len) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node() -> NonNull<RobustNode> {
        let node = RobustNode {
            word: AtomicU32::new(0),
            spare: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
        };
        NonNull::from(Box::leak(Box::new(node)))
    }

    fn word(node: NonNull<RobustNode>) -> u32 {
        // SAFETY: leaked by `node`.
        unsafe { node.as_ref() }.word.load(Ordering::Acquire)
    }

    #[test]
    fn nodes_come_and_go_in_any_order() {
        let nodes: Vec<_> = (0..5).map(|_| node()).collect();
        // SAFETY: leaked, distinct, private.
        let mut enlisted: Vec<_> = nodes.iter().map(|n| unsafe { enlist(*n) }.unwrap()).collect();
        assert!(nodes.iter().all(|n| word(*n) & WAITERS != 0 && word(*n) & !WAITERS != 0));
        for at in [2, 0, 2, 0, 0] {
            let gone = enlisted.remove(at);
            let its = gone.node;
            drop(gone);
            assert_eq!(word(its), 0);
            assert!(enlisted.iter().all(|e| word(e.node) != 0));
        }
    }

    #[test]
    fn the_word_outlives_the_thread_that_asked() {
        let node = node();
        let address = node.as_ptr() as usize;
        let enlisted = std::thread::spawn(move || {
            let node = NonNull::new(ptr::with_exposed_provenance_mut(address)).unwrap();
            // SAFETY: leaked, not enlisted yet.
            unsafe { enlist(node) }.unwrap()
        });
        let enlisted = enlisted.join().unwrap();
        assert_eq!(word(node) & crate::futex::OWNER_DIED, 0);
        drop(enlisted);
    }
}
