//! A log in memory. The tests of `front` have it as well.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Clones have the same text.
#[derive(Clone, Default)]
pub(crate) struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    pub(crate) fn records(&self) -> Vec<serde_json::Value> {
        let text = self.0.lock().unwrap();
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
