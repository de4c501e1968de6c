//! Attributes that users give files and directories.

use gridlane_auth::Operation;
use gridlane_core::limits;
use gridlane_store::StoreError;
use gridlane_xrd::answer::{Attribute, FattrAnswer, write_fattr_list};
use gridlane_xrd::flags::FattrOptions;
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{Fattr, FattrAbout};
use gridlane_xrd::{ErrorCode, PathArg};

use super::places::{Context, Places as _, allowed};
use crate::export::Spot;
use gridlane_front::root::answer::{Answer, Failure, Outcome, printable_path};

/// Answers `fattr`. Each name has its own status, in an answer that is good as a whole; only a list fails as one.
pub(crate) async fn fattr(context: &Context, request: &Fattr) -> Outcome {
    let act = match request.kind {
        FattrKind::LIST => "list fattrs",
        FattrKind::GET => "get fattrs",
        FattrKind::SET => "set fattrs",
        _ => "del fattrs",
    };
    let changes = matches!(request.kind, FattrKind::SET | FattrKind::DELETE);
    let mut by_opener = None;
    let about = match &request.about {
        FattrAbout::Path(about) => about.clone(),
        FattrAbout::Handle(handle) => {
            let file = context.session.files.get(*handle, "fattr")?;
            if changes && !file.is_changing() {
                let text =
                    format!("Unable to {act} {}; it is open for reading only", printable_path(&file.path));
                return Err(Failure::new(ErrorCode::INVALID_REQUEST, text));
            }
            let client = file.spot.client.for_request();
            by_opener = Some(Context { client, ..context.clone() });
            PathArg::new(file.path.clone())
        }
    };
    let context = by_opener.as_ref().unwrap_or(context);
    let operation = if changes { Operation::Overwrite } else { Operation::Stat };
    let spot = context.spot(&about, act, operation)?;
    if !changes && spot.storage().look(&spot.object).await.is_ok_and(|there| !there.is_directory()) {
        allowed(&spot, &about, act, Operation::Read)?;
    }
    let mut out = Vec::new();
    if request.kind == FattrKind::LIST {
        let listed = list(&spot, request.options.has(FattrOptions::VALUES)).await;
        let attributes = listed.map_err(|error| Failure::of_store(act, &about.path, &error))?;
        write_fattr_list(&attributes, request.options.has(FattrOptions::VALUES), &mut out);
        return Ok(Answer::Ok(out));
    }
    let mut outcomes = Vec::with_capacity(request.attributes.len());
    for (name, value) in &request.attributes {
        let outcome = one(&spot, request, name, value).await;
        outcomes.push((name.clone(), outcome.map_err(code_of)));
    }
    let answer = FattrAnswer { outcomes };
    answer.encode(request.kind == FattrKind::GET, &mut out);
    Ok(Answer::Ok(out))
}

/// Names, and their values if those are wanted.
async fn list(spot: &Spot, with_values: bool) -> Result<Vec<Attribute>, StoreError> {
    let posix = spot.storage().posix().ok_or(StoreError::Unsupported)?;
    let mut attributes: Vec<Attribute> = Vec::new();
    let mut bytes = 0;
    for name in posix.attribute_names(&spot.object).await? {
        let value = match with_values {
            true => posix.attribute(&spot.object, &name).await?,
            false => Some(Vec::new()),
        };
        // None: it was removed meanwhile.
        let Some(value) = value else { continue };
        bytes += name.len() + value.len();
        if bytes > limits::ROOT_ATTRIBUTE_LIST_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        attributes.push((name, value));
    }
    Ok(attributes)
}

async fn one(spot: &Spot, request: &Fattr, name: &[u8], value: &[u8]) -> Result<Vec<u8>, AttributeError> {
    let posix = spot.storage().posix().ok_or(StoreError::Unsupported)?;
    match request.kind {
        FattrKind::GET => posix.attribute(&spot.object, name).await?.ok_or(AttributeError::Missing),
        FattrKind::SET => {
            let must_be_new = request.options.has(FattrOptions::NEW);
            posix.set_attribute(&spot.object, name, value, must_be_new).await?;
            Ok(Vec::new())
        }
        _ => match posix.remove_attribute(&spot.object, name).await? {
            true => Ok(Vec::new()),
            false => Err(AttributeError::Missing),
        },
    }
}

/// The failure for one name.
enum AttributeError {
    Missing,
    Store(StoreError),
}

impl From<StoreError> for AttributeError {
    fn from(error: StoreError) -> AttributeError {
        AttributeError::Store(error)
    }
}

fn code_of(why: AttributeError) -> ErrorCode {
    match why {
        AttributeError::Missing => ErrorCode::ATTRIBUTE_NOT_FOUND,
        AttributeError::Store(error) => Failure::of_store("", b"", &error).code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, bytes, code, context, context_of, export_at, wait};
    use gridlane_xrd::Handle;
    use gridlane_xrd::answer::parse_fattr_list;

    fn ask(
        context: &Context,
        path: &str,
        kind: FattrKind,
        flags: u8,
        attributes: &[(&str, &str)],
    ) -> Outcome {
        let attributes =
            attributes.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let about = FattrAbout::Path(arg(path));
        wait(fattr(
            context,
            &Fattr { about, kind, options: FattrOptions(flags), attributes: attributes.collect() },
        ))
    }

    fn outcomes(outcome: Outcome, with_values: bool) -> Vec<Result<Vec<u8>, ErrorCode>> {
        let answer = FattrAnswer::parse(&bytes(outcome), with_values).unwrap();
        answer.outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    #[test]
    fn set_get_list_and_remove() {
        let context = context();
        let ask = |kind, flags, attributes: &[_]| ask(&context, "/d/f", kind, flags, attributes);
        assert_eq!(bytes(ask(FattrKind::LIST, 0x10, &[])), b"");
        assert_eq!(bytes(ask(FattrKind::SET, 0, &[("k", "vv"), ("l", "")])), b"\0\x02\0\0k\0\0\0l\0");
        let again = outcomes(ask(FattrKind::SET, 1, &[("k", "x"), ("m", "y")]), false);
        assert_eq!(again, [Err(ErrorCode::ITEM_EXISTS), Ok(vec![])]);
        let got = outcomes(ask(FattrKind::GET, 0, &[("k", ""), ("zz", "")]), true);
        assert_eq!(got, [Ok(b"vv".to_vec()), Err(ErrorCode::ATTRIBUTE_NOT_FOUND)]);
        let mut list = parse_fattr_list(&bytes(ask(FattrKind::LIST, 0x10, &[])), true).unwrap();
        list.sort();
        let expected = [("k", "vv"), ("l", ""), ("m", "y")];
        assert_eq!(list, expected.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())));
        let removed =
            outcomes(ask(FattrKind::DELETE, 0, &[("k", ""), ("zz", ""), ("l", ""), ("m", "")]), false);
        assert_eq!(removed.iter().filter(|outcome| outcome.is_ok()).count(), 3);
        assert_eq!(removed[1], Err(ErrorCode::ATTRIBUTE_NOT_FOUND));
        assert_eq!(bytes(ask(FattrKind::LIST, 0, &[])), b"");
    }

    #[test]
    fn missing_and_denied_files() {
        let context = context();
        for kind in [FattrKind::GET, FattrKind::SET, FattrKind::DELETE] {
            let outcome = ask(&context, "/nope", kind, 0, &[("k", "v")]);
            assert_eq!(outcomes(outcome, kind == FattrKind::GET), [Err(ErrorCode::NOT_FOUND)]);
        }
        assert_eq!(code(ask(&context, "/nope", FattrKind::LIST, 0, &[])), ErrorCode::NOT_FOUND);
        let about = FattrAbout::Handle(Handle([1; 4]));
        let request = Fattr { about, kind: FattrKind::LIST, options: FattrOptions::NONE, attributes: vec![] };
        assert_eq!(code(wait(fattr(&context, &request))), ErrorCode::FILE_NOT_OPEN);
        let context = context_of(vec![export_at("/")], |_| {});
        let refused = ask(&context, "/f", FattrKind::SET, 0, &[("k", "v")]);
        assert_eq!(code(refused), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(bytes(ask(&context, "/f", FattrKind::LIST, 0, &[])), b"");
    }
}
