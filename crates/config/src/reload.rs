//! Generations of settings: read at the beginning, and again when what they come from has changed.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use gridlane_core::Result;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::watch::Watch;

/// Reads the settings of a daemon.
pub trait Source {
    /// The settings that the daemon goes by.
    type Settings;
    /// The remains of one reading for the next: files that are open, counts, warnings that were told.
    type Kept: Clone + Default;

    /// Reads everything. The files and directories whose change is a reason to read again are named to `watch` as soon as
    /// they are known: what is wrong with these settings may become right there.
    fn read(&mut self, kept: &mut Self::Kept, watch: &mut Watch) -> Result<Self::Settings>;

    /// The time between two looks at the files, by these settings.
    fn interval(settings: &Self::Settings) -> Duration;
}

/// The reason why settings are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The daemon was told.
    Told,
    /// A file has changed.
    Changed,
}

/// The settings that a daemon goes by, and where the next ones come from.
///
/// [`Generations::changed`] waits for a reason, [`Generations::next`] reads and has the daemon go on by what was read. Settings
/// that cannot be read, or that the daemon refuses, change nothing: the generation before stays, with all that it kept.
#[derive(Debug)]
pub struct Generations<S: Source> {
    source: S,
    kept: S::Kept,
    watch: Watch,
    interval: Duration,
    number: u64,
}

impl<S: Source> Generations<S> {
    /// Reads the first settings. Those of `files` are watched from before that on.
    pub fn begin(
        mut source: S,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<(Generations<S>, S::Settings)> {
        let (mut kept, mut watch) = (S::Kept::default(), Watch::default());
        watch.follow(files);
        let settings = source.read(&mut kept, &mut watch)?;
        let interval = S::interval(&settings);
        Ok((Generations { source, kept, watch, interval, number: 1 }, settings))
    }

    /// The number of the settings that count, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The remains of the settings that count, for the next ones.
    pub fn kept(&self) -> &S::Kept {
        &self.kept
    }

    /// Waits for a reason to read again: a file has changed and stayed the same for a look, or `told` completes. Files are
    /// looked at where blocking is allowed, for which the runtime must have several threads.
    pub async fn changed(&mut self, told: impl Future<Output = ()>) -> Cause {
        tokio::pin!(told);
        loop {
            tokio::select! {
                () = &mut told => {
                    // It is read now: what was seen is no news afterwards.
                    block_in_place(|| self.watch.refresh());
                    return Cause::Told;
                }
                () = sleep(self.interval) => {
                    if block_in_place(|| self.watch.has_settled()) {
                        return Cause::Changed;
                    }
                }
            }
        }
    }

    /// Reads the next settings, and has the daemon go on by them. It blocks while files are read.
    ///
    /// # Errors
    ///
    /// Of the reading or of `accept`; then the generation before goes on counting.
    pub fn next<A>(&mut self, accept: impl FnOnce(S::Settings) -> Result<A>) -> Result<A> {
        let mut kept = self.kept.clone();
        let settings = self.source.read(&mut kept, &mut self.watch)?;
        let interval = S::interval(&settings);
        let accepted = accept(settings)?;
        (self.kept, self.interval) = (kept, interval);
        self.number += 1;
        Ok(accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::wrong;
    use serde::Deserialize;

    /// A daemon whose files are in memory.
    struct Memory(Vec<&'static str>);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Settings {
        rate: u64,
    }

    impl Source for Memory {
        type Settings = Settings;
        /// The rates that were read.
        type Kept = Vec<u64>;

        fn read(&mut self, kept: &mut Vec<u64>, _: &mut Watch) -> Result<Settings> {
            let settings: Settings = crate::file::parse(self.0.remove(0))?;
            kept.push(settings.rate);
            Ok(settings)
        }

        fn interval(settings: &Settings) -> Duration {
            Duration::from_secs(settings.rate)
        }
    }

    #[test]
    fn bad_settings_leave_the_old_ones_and_what_they_kept() {
        let texts = vec!["rate = 1", "rate = ", "rate = 2", "rate = 3", "speed = 4"];
        let (mut generations, first) = Generations::begin(Memory(texts), []).unwrap();
        assert_eq!((first, generations.number()), (Settings { rate: 1 }, 1));
        let state = |generations: &Generations<Memory>| {
            (generations.number(), generations.kept().clone(), generations.interval.as_secs())
        };
        let error = generations.next(Ok).unwrap_err();
        assert_eq!(error.endpoint_text(), Some("line 1"), "{error}");
        assert_eq!(state(&generations), (1, vec![1], 1));
        let error = generations.next(|_| Err::<(), _>(wrong("too little"))).unwrap_err();
        assert_eq!((error.message(), state(&generations)), ("too little", (1, vec![1], 1)));
        assert_eq!(generations.next(Ok).unwrap(), Settings { rate: 3 });
        assert_eq!(state(&generations), (2, vec![1, 3], 3));
        assert!(generations.next(Ok).is_err());
        assert_eq!(state(&generations), (2, vec![1, 3], 3));
        assert!(Generations::begin(Memory(vec!["rate = "]), []).is_err());
    }

    /// A file that has changed is a reason as soon as it has settled, and what the daemon was told is one at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn files_and_words_are_reasons() {
        struct InFile(PathBuf);
        impl Source for InFile {
            type Settings = Settings;
            type Kept = ();

            fn read(&mut self, (): &mut (), watch: &mut Watch) -> Result<Settings> {
                watch.follow([self.0.clone()]);
                crate::file::read(&self.0, crate::file::parse)
            }

            fn interval(_: &Settings) -> Duration {
                Duration::from_millis(1)
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f.toml");
        std::fs::write(&file, "rate = 1").unwrap();
        let (mut generations, _) = Generations::begin(InFile(file.clone()), []).unwrap();
        std::fs::write(&file, "rate = 20").unwrap();
        assert_eq!(generations.changed(std::future::pending()).await, Cause::Changed);
        assert_eq!(generations.next(Ok).unwrap(), Settings { rate: 20 });
        std::fs::write(&file, "rate =").unwrap();
        assert_eq!(generations.changed(std::future::ready(())).await, Cause::Told);
        let place = format!("{}, line 1", file.display());
        assert_eq!(generations.next(Ok).unwrap_err().endpoint_text(), Some(place.as_str()));
        std::fs::write(&file, "rate = 300").unwrap();
        assert_eq!(generations.changed(std::future::pending()).await, Cause::Changed);
        assert_eq!(generations.next(Ok).unwrap(), Settings { rate: 300 });
        assert_eq!(generations.number(), 3);
    }
}
