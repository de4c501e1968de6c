//! Jobs that come, and those that are refused.

use gridlane_core::Result;
use gridlane_jobs::{File, FileState::*, JobKind};

use super::found::Found;
use super::make::{full, go, id, job, made, numbered, one, submit};
use crate::store::{JobStore, Refused, Write, Written};

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    found.same("an empty store has no job", store.job(id(1))?, None);
    found.same("nor files of it", store.files(id(1), None, 0)?, Vec::<File>::new());

    let new = full(1);
    let files = submit(store, new.clone())?;
    found.same("a job comes back as it was", store.job(id(1))?, Some(new.job.clone()));
    found.same("files come back as they were", store.files(id(1), None, 0)?, numbered(&new, &files));
    found.same("and each by itself", store.file(files[1])?, numbered(&new, &files).pop());

    let again = one(store, Write::Submit(Box::new(full(1))))?;
    found.same("an id is taken once", again, Err(Refused::DuplicateJob));
    let third = job(3, JobKind::Plain, &[Submitted]);
    let both = [full(1), job(2, JobKind::Plain, &[Submitted; 3]), third.clone(), third]
        .map(|new| Write::Submit(Box::new(new)));
    let answers = store.write(&both)?;
    found.same("what is refused keeps nobody waiting", answers[0].clone(), Err(Refused::DuplicateJob));
    found.holds(
        "a job beside it is taken",
        matches!(&answers[1], Ok(Written::Submitted(files)) if files.len() == 3),
    );
    found.holds("and the next one", matches!(&answers[2], Ok(Written::Submitted(_))));
    found.same("but not twice in one transaction", answers[3].clone(), Err(Refused::DuplicateJob));
    found.same("nor kept twice", store.files(id(3), None, 0)?.len(), 1);

    let order: Vec<_> = store.files(id(2), None, 0)?.iter().map(|file| file.index).collect();
    found.same("numbers are in the order of the submission", order, vec![0, 1, 2]);
    let empty = submit(store, job(4, JobKind::Plain, &[]))?;
    found.same("a job may have no files", (empty, store.files(id(4), None, 0)?.len()), (vec![], 0));
    found.holds("and is one", store.job(id(4))?.is_some());
    found.same("a job without files is cancelled all the same", cancel_all(store)?, true);

    destinations(store, found)
}

fn cancel_all(store: &dyn JobStore) -> Result<bool> {
    let cancel = Write::Cancel { job: id(4), files: None, reason: "no".to_owned(), at_s: 5 };
    Ok(matches!(one(store, cancel)?, Ok(Written::Canceled(files, _)) if files.is_empty()))
}

/// Destinations of files that are not done, which some jobs have for themselves (fts3-rest 4.2).
fn destinations(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let unique = |number: u128, kind, destinations: &[&str]| {
        let mut new = job(number, kind, &vec![Submitted; destinations.len()]);
        for (file, destination) in new.files.iter_mut().zip(destinations) {
            file.destination = (*destination).to_owned();
        }
        new.has_unique_destinations = true;
        new
    };
    let refused = |url: &str| Err(Refused::DuplicateDestination(url.to_owned()));
    let try_one = |new| one(store, Write::Submit(Box::new(new)));

    let files = submit(store, unique(10, JobKind::Plain, &["davs://b/1", "davs://b/2"]))?;
    let clash = try_one(unique(11, JobKind::Plain, &["davs://b/3", "davs://b/2"]))?;
    found.same("a destination is taken while its file is not done", clash, refused("davs://b/2"));
    found.same("a job that is refused leaves nothing", store.job(id(11))?, None);
    let mut careless = unique(12, JobKind::Plain, &["davs://b/2"]);
    careless.has_unique_destinations = false;
    submit(store, careless)?;
    found.holds("a destination is not looked at if that is not asked for", store.job(id(12))?.is_some());
    let twice = try_one(unique(13, JobKind::Plain, &["davs://b/4", "davs://b/4"]))?;
    found.same("a job clashes with itself", twice, refused("davs://b/4"));
    let clash = store.write(
        &[14, 15].map(|number| Write::Submit(Box::new(unique(number, JobKind::Plain, &["davs://b/5"])))),
    )?;
    found.same("and with one of the same transaction", clash[1].clone(), refused("davs://b/5"));

    made(go(store, files[1], Failed, 20)?)?;
    let freed = submit(store, unique(11, JobKind::Plain, &["davs://b/3", "davs://b/2"]))?;
    found.same("a destination is free when its file has failed", freed.len(), 2);
    let clash = try_one(unique(16, JobKind::Plain, &["davs://b/1"]))?;
    found.same("and that of another file of the job is not", clash, refused("davs://b/1"));
    made(one(store, Write::Cancel { job: id(10), files: None, reason: "no".to_owned(), at_s: 21 })?)?;
    submit(store, unique(16, JobKind::Plain, &["davs://b/1"]))?;
    found.holds("a job that is cancelled has no destinations", store.job(id(16))?.is_some());

    let mut replicas = unique(17, JobKind::Replicas, &["davs://b/r", "davs://b/r"]);
    for file in &mut replicas.files {
        file.index = 0;
    }
    replicas.files[1].state = NotUsed;
    let files = submit(store, replicas)?;
    made(go(store, files[0], Failed, 22)?)?;
    let clash = try_one(unique(18, JobKind::Plain, &["davs://b/r"]))?;
    found.same("replicas have their destination until the last one", clash, refused("davs://b/r"));
    made(go(store, files[1], Finished, 23)?)?;
    submit(store, unique(18, JobKind::Plain, &["davs://b/r"]))?;
    found.holds("and not any longer", store.job(id(18))?.is_some());
    Ok(())
}
