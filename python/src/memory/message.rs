//! A received message as a Python object.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use thalweg_channel::Held;

use super::exports::{Exported, Start, expose};
use super::pool::{PooledRoom, RoomPool};
use crate::header::Layout;

/// A received message. Its memory is released when the last array or view of it is freed.
#[pyclass(frozen, weakref, name = "Message", module = "thalweg._native")]
pub struct PyMessage {
    layout: Layout,
    start: Start,
    writable: bool,
    _memory: MessageMemory,
}

/// Owner of the elements' memory.
enum MessageMemory {
    /// Private memory. No code reads the fields `_room` and `_held`, which only keep the memory alive.
    Own { _room: PooledRoom },
    /// The message in the ring.
    Held { _held: Held },
}

impl PyMessage {
    /// Creates a message from elements that were copied to private memory, at offset `skip`.
    pub fn own(layout: Layout, mut room: PooledRoom, skip: usize, writable: bool) -> Self {
        let start = Start(NonNull::from(&mut room.bytes(skip + layout.bytes())[skip..]).cast());
        Self { layout, start, writable, _memory: MessageMemory::Own { _room: room } }
    }

    /// Creates a message that stays in the ring, with its elements at offset `skip`.
    pub fn held(layout: Layout, held: Held, skip: usize) -> Self {
        // Panics if the message is shorter than the layout, which was parsed from the message itself.
        let start = Start(NonNull::from(&held[skip..skip + layout.bytes()]).cast());
        Self { layout, start, writable: false, _memory: MessageMemory::Held { _held: held } }
    }
}

#[pymethods]
impl PyMessage {
    /// The type of the elements: encoding, format, and bytes per element.
    #[getter]
    fn kind(&self) -> (u8, String, usize) {
        self.layout.kind()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.layout.shape)
    }

    /// True if the message is in the ring and occupies room there.
    #[getter]
    fn is_held(&self) -> bool {
        matches!(self._memory, MessageMemory::Held { .. })
    }

    /// Returns an empty message with the type of this one, but with unaligned structures; None if the type contains
    /// no structure.
    fn unaligned(&self) -> Option<Self> {
        let format = self.layout.format.to_bytes();
        format.starts_with(b"T{").then_some(())?;
        let pieces = format.split(|byte| *byte == b':').enumerate();
        // Colons enclose field names, which stay unchanged.
        let pieces: Vec<Vec<u8>> = pieces
            .map(|(at, piece)| {
                let asked = |byte: &u8| if at % 2 == 0 && *byte == b'@' { b'^' } else { *byte };
                piece.iter().map(asked).collect()
            })
            .collect();
        let format = CString::new([b"^".to_vec(), pieces.join(&b':')].concat()).ok()?;
        let layout = Layout::new(self.layout.encoding, format, self.layout.item, vec![0])?;
        Some(Self::own(layout, RoomPool::default().room(1)?, 0, false))
    }

    /// # Safety
    /// Called by the interpreter, with room for a view.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let message = slf.get();
        let (layout, writable) = (&message.layout, message.writable);
        let exported = Exported { layout, start: message.start.0, writable };
        // SAFETY: guaranteed by the interpreter. The memory belongs to the object, and the view holds a reference to
        // the object. Only Python writes it: a room is private, and a held message does not change until it is
        // dropped.
        unsafe { expose(slf.clone().into_any(), view, flags, exported) }
    }
}
