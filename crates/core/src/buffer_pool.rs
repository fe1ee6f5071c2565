//! Reuse of buffers and pipes between transfers of one thread, for callers that move thousands of small objects per
//! second. A thread keeps nothing unless it calls [`keep`].

use std::cell::RefCell;

use thalweg_sys::{buffer::Buffer, pipe::Pipe};

/// The limits of the resources that a thread keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Total bytes of all buffers.
    pub bytes: usize,
    /// Number of pipes, of two descriptors each.
    pub pipes: usize,
}

#[derive(Default)]
struct ThreadBuffers {
    most: Most,
    buffers: Vec<Buffer>,
    /// Each pipe, with the capacity that was requested for it.
    pipes: Vec<(usize, Pipe)>,
}

thread_local! {
    static SPARES: RefCell<ThreadBuffers> = RefCell::default();
}

/// Sets the limits for this thread, and drops all kept resources.
pub fn keep(most: Most) {
    with(|spares| {
        *spares = ThreadBuffers { most, ..ThreadBuffers::default() };
    });
}

/// Returns a buffer of this length with arbitrary contents.
pub(crate) fn buffer(len: usize) -> Buffer {
    let kept = with(|spares| {
        let is_large_enough = |buffer: &Buffer| buffer.capacity() >= len;
        let at = spares.buffers.iter().position(is_large_enough)?;
        Some(spares.buffers.swap_remove(at))
    });
    match kept.flatten() {
        Some(mut buffer) => {
            buffer.resize(len);
            buffer
        }
        None => Buffer::new(len),
    }
}

/// Keeps a buffer for reuse, within the limits.
pub(crate) fn give_buffer(buffer: Buffer) {
    with(|spares| {
        let kept: usize = spares.buffers.iter().map(Buffer::capacity).sum();
        if buffer.capacity() > 0 && kept + buffer.capacity() <= spares.most.bytes {
            spares.buffers.push(buffer);
        }
    });
}

/// Returns a kept empty pipe that was created with this requested capacity.
pub(crate) fn pipe(wished: usize) -> Option<Pipe> {
    let kept = with(|spares| {
        let at = spares.pipes.iter().position(|(capacity, _)| *capacity == wished)?;
        Some(spares.pipes.swap_remove(at).1)
    });
    kept.flatten()
}

/// Keeps an empty pipe for reuse, within the limits.
pub(crate) fn give_pipe(wished: usize, pipe: Pipe) {
    with(|spares| {
        if spares.pipes.len() < spares.most.pipes {
            spares.pipes.push((wished, pipe));
        }
    });
}

/// Runs `act` on the resources that the thread keeps. `None` if the thread is ending and has destroyed them.
fn with<T>(act: impl FnOnce(&mut ThreadBuffers) -> T) -> Option<T> {
    SPARES.try_with(|spares| act(&mut spares.borrow_mut())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ones(len: usize) -> Buffer {
        let mut buffer = Buffer::new(len);
        buffer.fill(1);
        buffer
    }

    #[test]
    fn a_thread_keeps_what_it_says_and_nothing_more() {
        give_buffer(of_ones(100));
        give_pipe(4096, Pipe::new(4096).unwrap());
        assert_eq!(*buffer(100), [0; 100]);
        assert!(pipe(4096).is_none());
        keep(Most { bytes: 250, pipes: 1 });
        for _ in 0..3 {
            give_buffer(of_ones(100));
            give_pipe(4096, Pipe::new(4096).unwrap());
        }
        assert_eq!(*buffer(50), [1; 50]);
        assert_eq!(*buffer(100), [1; 100]);
        assert_eq!(*buffer(100), [0; 100]);
        assert!(pipe(8192).is_none() && pipe(4096).is_some() && pipe(4096).is_none());
        give_buffer(of_ones(100));
        keep(Most::default());
        assert_eq!(*buffer(100), [0; 100]);
    }
}
