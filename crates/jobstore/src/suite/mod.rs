//! What every store has to do: for the tests of this crate, over each dialect.

mod changes;
mod found;
pub mod make;
mod names;
mod reading;
mod settings;
mod submitting;
mod together;

use gridlane_core::Result;

use crate::store::JobStore;
use found::Found;

/// Checks a store that is empty. `again` opens it anew, as a process does that comes after this one; `faults` says what does not
/// fit together in it.
///
/// # Errors
/// What the store itself fails with, and in words what it does that it must not.
pub fn check<S: JobStore>(
    store: S,
    again: impl Fn(S) -> Result<S>,
    faults: impl Fn(&S) -> Result<Vec<String>>,
) -> Result<std::result::Result<(), String>> {
    let mut found = Found::default();
    let parts: [(&str, Part); 7] = [
        ("submitting", submitting::check),
        ("changes", changes::check),
        ("cancelling", changes::check_canceling),
        ("reading", reading::check),
        ("settings", settings::check),
        ("names", names::check),
        ("together", together::check),
    ];
    let mut store = store;
    for (name, part) in parts {
        found.part = name;
        part(&store, &mut found)?;
        found.same("everything fits together", faults(&store)?, Vec::new());
        let before = reading::everything(&store)?;
        store = again(store)?;
        found.same("a store that is opened again has what it had", reading::everything(&store)?, before);
    }
    reading::check_archive(&store, &mut found)?;
    found.same("everything fits together, with an archive", faults(&store)?, Vec::new());
    Ok(match found.wrong.is_empty() {
        true => Ok(()),
        false => Err(found.wrong.join("\n")),
    })
}

/// A part of the suite.
type Part = fn(&dyn JobStore, &mut Found) -> Result<()>;
