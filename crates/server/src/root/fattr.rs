//! Attributes that users give files and directories.

use gridlane_core::limits;
use gridlane_store::StoreError;
use gridlane_xrd::answer::{FattrAnswer, write_fattr_list};
use gridlane_xrd::flags::FattrOptions;
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{Fattr, FattrAbout};
use gridlane_xrd::{ErrorCode, PathArg};

use super::answer::{Answer, Failure, Outcome};
use super::context::{Context, allowed};
use crate::export::Spot;
use crate::rules::Operation;

/// Answers `fattr`. How it went is told for each name, in an answer that is good as a whole; only a list fails as one.
/// May wait for the disk.
pub(crate) fn fattr(context: &Context, request: &Fattr) -> Outcome {
    let act = match request.kind {
        FattrKind::LIST => "list fattrs",
        FattrKind::GET => "get fattrs",
        FattrKind::SET => "set fattrs",
        _ => "del fattrs",
    };
    let changes = matches!(request.kind, FattrKind::SET | FattrKind::DELETE);
    let about = match &request.about {
        FattrAbout::Path(about) => about.clone(),
        FattrAbout::Handle(handle) => {
            let file = context.session.files.get(*handle)?;
            PathArg::new(file.path.clone())
        }
    };
    let operation = if changes { Operation::Write } else { Operation::Look };
    let spot = context.spot(&about, act, operation)?;
    if !changes && spot.storage().look(&spot.object).is_ok_and(|there| !there.is_directory()) {
        allowed(&spot, &about, act, Operation::Read)?;
    }
    let mut out = Vec::new();
    if request.kind == FattrKind::LIST {
        let attributes = list(&spot, request.options.has(FattrOptions::VALUES))
            .map_err(|error| Failure::of_store(act, &about.path, &error))?;
        write_fattr_list(&attributes, request.options.has(FattrOptions::VALUES), &mut out);
        return Ok(Answer::Ok(out));
    }
    let outcomes = request.attributes.iter().map(|(name, value)| {
        let outcome = one(&spot, request, name, value);
        (name.clone(), outcome.map_err(|error| code_of(error)))
    });
    let answer = FattrAnswer { outcomes: outcomes.collect() };
    answer.encode(request.kind == FattrKind::GET, &mut out);
    Ok(Answer::Ok(out))
}

/// Names, and their values if those are wanted.
fn list(spot: &Spot, with_values: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
    let storage = spot.storage();
    let mut attributes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    for name in storage.attribute_names(&spot.object)? {
        let value = match with_values {
            true => storage.attribute(&spot.object, &name)?,
            false => Some(Vec::new()),
        };
        // None: somebody removed it meanwhile.
        let Some(value) = value else { continue };
        bytes += name.len() + value.len();
        if bytes > limits::ROOT_ATTRIBUTE_LIST_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        attributes.push((name, value));
    }
    Ok(attributes)
}

fn one(spot: &Spot, request: &Fattr, name: &[u8], value: &[u8]) -> Result<Vec<u8>, One> {
    let storage = spot.storage();
    match request.kind {
        FattrKind::GET => storage.attribute(&spot.object, name)?.ok_or(One::Missing),
        FattrKind::SET => {
            let must_be_new = request.options.has(FattrOptions::NEW);
            storage.set_attribute(&spot.object, name, value, must_be_new)?;
            Ok(Vec::new())
        }
        _ => match storage.remove_attribute(&spot.object, name)? {
            true => Ok(Vec::new()),
            false => Err(One::Missing),
        },
    }
}

/// Why it did not go well for one name.
enum One {
    Missing,
    Store(StoreError),
}

impl From<StoreError> for One {
    fn from(error: StoreError) -> One {
        One::Store(error)
    }
}

fn code_of(why: One) -> ErrorCode {
    match why {
        One::Missing => ErrorCode::ATTRIBUTE_NOT_FOUND,
        One::Store(error) => Failure::of_store("", b"", &error).code,
    }
}
