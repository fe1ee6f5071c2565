//! Conversion of received messages to Python objects, and warnings about messages that are held for long.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

use crate::memory::PyMessage;
use crate::object::ObjectParts;

/// Converts messages to Python objects.
pub struct MessageConverter {
    array: Py<PyAny>,
    /// The object that warns about messages that are held for long.
    holding: Option<Py<PyAny>>,
}

impl MessageConverter {
    /// Creates the converter. With `hold`, [`MessageConverter::check`] issues a warning if the caller holds more than
    /// this many uncopied messages.
    pub fn new(py: Python<'_>, hold: Option<usize>) -> PyResult<Self> {
        let array = py.import("thalweg._arrays")?.getattr("shown")?.unbind();
        let holding = |most| py.import("thalweg._holding")?.getattr("Holding")?.call1((most,));
        Ok(Self { array, holding: hold.map(holding).transpose()?.map(Bound::unbind) })
    }

    /// Issues a warning if the caller holds too many messages. Called before a message is requested.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.holding.as_ref().map_or(Ok(()), |all| all.call_method0(py, "check").map(drop))
    }

    pub fn array(&self, py: Python<'_>, message: PyMessage) -> PyResult<Py<PyAny>> {
        let message = self.noted(py, message)?;
        self.array.call1(py, (message,))
    }

    pub fn object(
        &self,
        py: Python<'_>,
        message: PyMessage,
        parts: ObjectParts,
    ) -> PyResult<Py<PyAny>> {
        let message = self.noted(py, message)?;
        let loaded = py.import("thalweg._objects")?.getattr("loaded")?;
        Ok(loaded.call1((message, parts.ranges()))?.unbind())
    }

    fn noted(&self, py: Python<'_>, message: PyMessage) -> PyResult<Py<PyMessage>> {
        let message = Py::new(py, message)?;
        if let Some(all) = &self.holding {
            all.call_method1(py, "note", (&message,))?;
        }
        Ok(message)
    }
}

/// Converts Closed, the regular end of a channel, to StopIteration.
pub fn ending(py: Python<'_>, error: PyErr) -> PyErr {
    let closed = py.import("thalweg._errors").and_then(|errors| errors.getattr("Closed"));
    match closed {
        Ok(closed) if error.is_instance(py, &closed) => PyStopIteration::new_err(()),
        _ => error,
    }
}
