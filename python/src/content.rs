//! Contents of a message: an array with its header, plain bytes, or a pickled object.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use std::ffi::CString;
use std::time::Instant;

use crate::alone::OneThread;
use crate::error::PyFailure;
use crate::header::{Encoding, Layout};
use crate::memory::HeldBuffer;
use crate::object::Pickled;
use crate::wait::deadline;

/// An end that sends messages of any content.
pub trait SendsContent {
    fn send(
        &mut self,
        py: Python<'_>,
        content: &MessageContent,
        deadline: Option<Instant>,
    ) -> PyResult<()>;
}

/// Sends a message by an end. No other thread may use the end during the call.
pub fn deliver(
    py: Python<'_>,
    end: &OneThread<impl SendsContent>,
    content: &MessageContent,
    timeout: Option<f64>,
) -> PyResult<()> {
    let deadline = deadline(timeout)?;
    end.with(py, |inside| inside.send(py, content, deadline))
}

pub enum MessageContent {
    Array(HeldBuffer, Layout, usize),
    Bytes(HeldBuffer, usize),
    Object(Pickled),
}

impl MessageContent {
    /// Takes an array, or another object with a buffer.
    pub fn array(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // The buffer of a masked array (`numpy.ma`) contains only its data, so the mask would be lost.
        if object.hasattr(intern!(object.py(), "_sharedmask"))? {
            let why = "a masked array would lose its mask: send `.filled()`, or use send_object, which pickles it, if the \
                       receiver trusts this process";
            return Err(PyTypeError::new_err(why));
        }
        let (given, layout) = described(object)?;
        let len = message_of(object.py(), &layout)?;
        Ok(Self::Array(given, layout, len))
    }

    /// Takes the bytes of a buffer. The message has no header of this module, so programs in other languages can
    /// read it.
    pub fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = HeldBuffer::get(object, false)?;
        let layout = given.layout().ok_or_else(|| too_large(object.py()))?;
        // The bytes of an array of objects are addresses in this process.
        if let Err(why) = layout.check_type() {
            return Err(refused_type(why));
        }
        let len = layout.bytes();
        Ok(Self::Bytes(given, len))
    }

    /// Pickles an object.
    pub fn object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Pickled::of(object).map(Self::Object)
    }

    /// Returns the size of the message in bytes.
    pub fn message(&self) -> usize {
        match self {
            Self::Array(_, _, len) | Self::Bytes(_, len) => *len,
            Self::Object(pickled) => pickled.message(),
        }
    }

    /// Returns `true` if the message may be sent in parts. Programs in other languages cannot read parts.
    pub fn may_be_cut(&self) -> bool {
        !matches!(self, Self::Bytes(..))
    }

    /// Returns `true` if `write_part` can write any range of the message.
    pub fn is_flat(&self) -> bool {
        matches!(self, Self::Array(given, ..) if given.is_flat())
    }

    /// Writes the bytes of a flat message from offset `at` on.
    pub fn write_part(&self, at: usize, to: &mut [u8]) {
        let Self::Array(given, layout, _) = self else { return };
        let mut head = vec![0; layout.offset()];
        layout.write(&mut head);
        let head = head.get(at..).unwrap_or_default();
        let (front, elements) = to.split_at_mut(head.len().min(to.len()));
        front.copy_from_slice(&head[..front.len()]);
        given.copy_part_to((at + front.len()).saturating_sub(layout.offset()), elements);
    }

    /// Returns a function that writes the message.
    pub fn writer<'a>(&'a self, py: Python<'a>) -> impl FnOnce(&mut [u8]) + Send + 'a {
        let pickle = match self {
            Self::Object(pickled) => pickled.pickle(py),
            Self::Array(..) | Self::Bytes(..) => &[],
        };
        move |message| match self {
            Self::Array(given, layout, _) => {
                layout.write(message);
                given.copy_to(&mut message[layout.offset()..]);
            }
            Self::Bytes(given, _) => given.copy_to(message),
            Self::Object(pickled) => pickled.write(message, pickle),
        }
    }
}

/// Returns the buffer of an object and its layout.
fn described(object: &Bound<'_, PyAny>) -> PyResult<(HeldBuffer, Layout)> {
    let py = object.py();
    let given = match HeldBuffer::get(object, false) {
        Ok(given) => given,
        Err(why) => {
            // The object has no usable buffer. `plain` converts an array of dates to integers and the name of its
            // type. For other objects, it raises an exception.
            let plain = py.import("thalweg._arrays")?.getattr("plain")?;
            let plain = plain.call1((object, why.into_value(py)))?;
            let (array, name): (Bound<'_, PyAny>, String) = plain.extract()?;
            let given = HeldBuffer::get(&array, false)?;
            let layout = given.layout().ok_or_else(|| too_large(py))?;
            let layout = Layout { encoding: Encoding::Time, format: CString::new(name)?, ..layout };
            return Ok((given, layout));
        }
    };
    let layout = given.layout().ok_or_else(|| too_large(py))?;
    if let Err(why) = layout.check_type() {
        return Err(refused_type(why));
    }
    Ok((given, layout))
}

/// Returns the size in bytes of an array's message.
pub fn message_of(py: Python<'_>, layout: &Layout) -> PyResult<usize> {
    layout.message().ok_or_else(|| too_large(py))
}

/// Returns the exception for an array that is too large, or that the header of a message cannot express.
fn too_large(py: Python<'_>) -> PyErr {
    let words = "the array has more bytes, dimensions or fields than fit into a message";
    PyFailure::new("TooLarge", words).raised(py)
}

/// Returns the exception for an array with elements that cannot be sent.
fn refused_type(why: &str) -> PyErr {
    let instead = "use send_object, which pickles it, if the receiver trusts this process";
    PyTypeError::new_err(format!("cannot send the elements of this array: {why}: {instead}"))
}
