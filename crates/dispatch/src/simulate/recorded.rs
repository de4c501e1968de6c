//! Work that was recorded elsewhere: from a service's log, say.

use gridlane_core::{Error, ErrorKind, Fault, Result};

use super::world::{Batch, Scenario};

/// The columns, as the first line names them.
const HEADER: &str = "at_s,source,destination,files,size_bytes,vo,activity";

impl Scenario {
    /// Replaces the work by what a text says, a line for files that came together: `at_s,source,destination,files,size_bytes,vo,activity`
    /// in the first line, and below it values, with commas between them and in none of them.
    ///
    /// # Errors
    /// A line is none, or is about storages between which this world has no path.
    pub fn replay(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line.trim() != HEADER) {
            return Err(wrong(1, &format!("the first line has to be {HEADER}")));
        }
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        self.batches = lines.map(|(place, line)| self.batch(place + 1, line)).collect::<Result<_>>()?;
        Ok(())
    }

    fn batch(&self, line: usize, text: &str) -> Result<Batch> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [at_s, source, destination, files, size_bytes, vo, activity] = fields[..] else {
            return Err(wrong(line, "it has other than seven values"));
        };
        let number =
            |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let paths = &mut self.paths.iter();
        let path = paths.position(|path| path.source == source && path.destination == destination);
        Ok(Batch {
            at_s: number(at_s).ok_or_else(|| wrong(line, "its time is no number of seconds"))?,
            path: path.ok_or_else(|| wrong(line, "there is no path between its storages"))?,
            files: files.parse().map_err(|_| wrong(line, "its number of files is none"))?,
            size_bytes: size_bytes.parse().map_err(|_| wrong(line, "its size is no number of bytes"))?,
            vo: vo.to_owned(),
            activity: activity.to_owned(),
        })
    }
}

fn wrong(line: usize, why: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("line {line} of the recorded work: {why}")).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use crate::optimizer::Kind;
    use crate::simulate::{run, shared};

    #[test]
    fn recorded_work_is_done() {
        let mut scenario = shared();
        let header = super::HEADER;
        let lines = "0,davs://s3.example,davs://d3.example,20,5000000,atlas,user\n 10.5, davs://s4.example,davs://d4.example,1,1,cms,x\n";
        scenario.replay(&format!("{header}\n{lines}\n")).unwrap();
        let report = run(&scenario, Kind::Ours);
        assert_eq!((report.finished, report.failed), (21, 0));
        assert!(report.time_s > 10.5);
        for (text, why) in [
            ("", "line 1"),
            ("0,a,b,1,1,vo,x", "line 2 of the recorded work: there is no path"),
            ("0,a,b", "seven values"),
            ("-1,davs://s3.example,davs://d3.example,1,1,vo,x", "seconds"),
            ("1,davs://s3.example,davs://d3.example,-1,1,vo,x", "files"),
            ("1,davs://s3.example,davs://d3.example,1,1e99,vo,x", "bytes"),
        ] {
            let text = if text.is_empty() { String::new() } else { format!("{header}\n{text}") };
            let error = scenario.replay(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
