//! Publishes several messages together.

use pyo3::prelude::*;
use std::time::Instant;

use super::ProducerInner;
use crate::content::{MessageContent, SendsContent};
use crate::error::{is_timeout, raised};

impl ProducerInner {
    /// Sends several messages, as many at a time as the ring has room for.
    pub fn send_all(
        &mut self,
        py: Python<'_>,
        contents: &[MessageContent],
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let mut left: Vec<_> =
            contents.iter().rev().map(|content| (content.message(), content.writer(py))).collect();
        while let Some((len, _)) = left.last() {
            let sent = contents.len() - left.len();
            let done = match self.send_some(py, *len, deadline, &mut left) {
                Ok(0) => {
                    left.pop();
                    self.send(py, &contents[sent], deadline)
                }
                other => other.map(|_| ()),
            };
            if let Err(error) = done {
                if is_timeout(py, &error) {
                    error.value(py).setattr("moved", sent)?;
                }
                return Err(error);
            }
            py.check_signals()?;
        }
        Ok(())
    }

    /// Sends messages from the end of `left`. Waits for room for the last one, and continues while the ring has
    /// room. Returns the number of sent messages; 0 if the last one is larger than the ring.
    fn send_some(
        &mut self,
        py: Python<'_>,
        len: usize,
        deadline: Option<Instant>,
        left: &mut Vec<(usize, impl FnOnce(&mut [u8]) + Send)>,
    ) -> PyResult<u64> {
        let largest = self.ring(py, len, deadline)?.producer().largest();
        if len > largest {
            return Ok(0);
        }
        let (ring, _) = self.room(py, len, deadline)?;
        let sent = py.detach(|| {
            let mut producer = ring.producer();
            let mut batch = producer.batch();
            while let Some((len, _)) = left.last().filter(|(len, _)| *len <= largest) {
                let Some(room) = batch.loan(*len)? else { break };
                if let Some((_, write)) = left.pop() {
                    write(room);
                }
            }
            batch.commit()
        });
        sent.map_err(raised(py))
    }
}
