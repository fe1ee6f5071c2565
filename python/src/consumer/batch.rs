//! Receives several messages with one call.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Instant;

use super::{ConsumerStage, PyConsumer};
use crate::error::{is_timeout, raised};
use crate::long::MessagePart;
use crate::read::ReceivedPiece;

impl PyConsumer {
    /// Returns all available arrays: at least one, and at most `most`.
    pub fn all(
        &self,
        py: Python<'_>,
        most: usize,
        deadline: Option<Instant>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        if most == 0 {
            return Err(PyValueError::new_err("most must be at least 1"));
        }
        let mut arrays = vec![self.next(py, deadline)?];
        while arrays.len() < most {
            let next = match self.has_whole(py) {
                Ok(true) => self.next(py, Some(Instant::now())),
                Ok(false) => break,
                Err(error) => Err(error),
            };
            match next {
                Ok(array) => arrays.push(array),
                Err(error) if is_timeout(py, &error) => break,
                // Returns the arrays before the invalid message. The next call returns the error.
                Err(error) => {
                    self.inside.with(py, |inside| {
                        inside.late = Some(error);
                        Ok(())
                    })?;
                    break;
                }
            }
        }
        Ok(arrays)
    }

    /// Returns `true` if a complete message is available now. A message in parts does not count, because messages
    /// that the caller holds may occupy the room that the remaining parts need.
    fn has_whole(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            let ConsumerStage::Open(source) = &mut inside.state else { return Ok(false) };
            if inside.long.is_whole() {
                return Ok(true);
            }
            let Some(next) = source.try_next().map_err(raised(py))? else { return Ok(false) };
            let is_part = MessagePart::read(&next).is_some();
            next.leave();
            Ok(!is_part)
        })
    }
}
