use gridlane_xrd::flags::{OpenMore, OpenOptions};
use gridlane_xrd::request::{Close, Open};
use gridlane_xrd::{PathArg, Request, StreamId};
use proptest::prelude::*;

use super::super::testing::{code, context};
use super::super::{close, open};
use super::*;
use gridlane_front::root::session_files::SessionFiles as _;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

async fn opened(context: &Context, path: &str, options: OpenOptions) -> Handle {
    let about = PathArg::new(path);
    let request = Open { mode: 0o644, options, more: OpenMore::NONE, template: Handle::default(), about };
    match open::open(context, &request).await.unwrap() {
        Answer::Ok(body) => Handle(*body.first_chunk().unwrap()),
        _ => panic!("not opened"),
    }
}

/// Sends a request and `data` in chunks of these lengths; returns the answer and the number of bytes that were taken.
async fn fed(
    context: &Context,
    request: impl Into<Request>,
    counted: usize,
    data: &[u8],
    chunks: &[usize],
) -> (Outcome, usize) {
    let mut bytes = Vec::new();
    request.into().encode_for(StreamId([1, 2]), counted as u32, &mut bytes);
    bytes.extend_from_slice(data);
    let head = RequestHead::parse(bytes.first_chunk().unwrap()).unwrap();
    let mut rest = &bytes[REQUEST_HEAD_BYTES..];
    let mut intake = Intake::new(context, &head);
    let mut chunks = chunks.iter().cycle();
    while !intake.is_done() {
        let room = intake.room();
        if room.is_empty() {
            intake.write().await;
            continue;
        }
        let count = room.len().min(rest.len()).min(*chunks.next().unwrap());
        assert!(count > 0, "more is wanted than there is");
        room[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        intake.took(count);
    }
    (intake.finish().await, bytes.len() - REQUEST_HEAD_BYTES - rest.len())
}

const NEW: OpenOptions = OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0);

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Pages(u64, Vec<u8>),
    Vector(Vec<(u64, Vec<u8>)>),
}

fn step() -> impl Strategy<Value = Step> {
    let long = || prop::collection::vec(any::<u8>(), 1..20_000);
    let short = prop::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        (0u64..20_000, long()).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        (0u64..20_000, long()).prop_map(|(at, bytes)| Step::Pages(at, bytes)),
        prop::collection::vec((0u64..20_000, short), 1..20).prop_map(Step::Vector),
    ]
}

fn put(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (begin, end) = (at as usize, at as usize + bytes.len());
    if !bytes.is_empty() {
        model.resize(model.len().max(end), 0);
        model[begin..end].copy_from_slice(bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn however_bytes_come_they_are_where_they_belong(
        steps in prop::collection::vec(step(), 1..6),
        chunks in prop::collection::vec(1usize..9000, 1..10),
    ) {
        runtime().block_on(async {
            let context = context();
            let handle = opened(&context, "/d/new", NEW).await;
            let mut model = Vec::new();
            for step in &steps {
                let (outcome, taken, sent) = match step {
                    Step::Write(at, bytes) => {
                        put(&mut model, *at, bytes);
                        let write = Write { handle, offset: *at, path_id: PathId::MAIN };
                        let (outcome, taken) = fed(&context, write, bytes.len(), bytes, &chunks).await;
                        (outcome, taken, bytes.len())
                    }
                    Step::Pages(at, bytes) => {
                        put(&mut model, *at, bytes);
                        let mut framed = Vec::new();
                        pages::frame(*at, bytes, &mut framed);
                        let write = PgWrite { handle, offset: *at, path_id: PathId::MAIN, is_retry: false };
                        let (outcome, taken) = fed(&context, write, framed.len(), &framed, &chunks).await;
                        (outcome, taken, framed.len())
                    }
                    Step::Vector(parts) => {
                        parts.iter().for_each(|(at, bytes)| put(&mut model, *at, bytes));
                        let segments = parts.iter().map(|(offset, bytes)| {
                            Segment { handle, len: bytes.len() as u32, offset: *offset }
                        });
                        let writev = WriteV { syncs: true, segments: segments.collect() };
                        let data: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
                        let (outcome, taken) = fed(&context, writev, 0, &data, &chunks).await;
                        (outcome, taken, parts.len() * Segment::BYTES + data.len())
                    }
                };
                prop_assert!(outcome.is_ok());
                prop_assert_eq!(taken, sent);
            }
            let file = context.session.files.get(handle, "").unwrap();
            prop_assert_eq!(file.metadata().await.unwrap().size_bytes, model.len() as u64);
            let mut read = vec![0; model.len()];
            let count = file.object().unwrap().read_at(&mut read, 0).await.unwrap();
            prop_assert_eq!(count, model.len());
            prop_assert!(read == model);
            Ok(())
        })?;
    }
}

#[test]
fn data_of_a_refused_request_are_dropped_or_end_the_connection() {
    runtime().block_on(async {
        let context = context();
        let data = vec![7; 600_000];
        let write = |handle, path_id| Write { handle, offset: 0, path_id };
        let nobody = Handle([9; 4]);
        let (outcome, taken) = fed(&context, write(nobody, PathId::MAIN), data.len(), &data, &[5000]).await;
        assert_eq!((code(outcome), taken), (ErrorCode::FILE_NOT_OPEN, data.len()));
        let reading = opened(&context, "/d/f", OpenOptions::READ).await;
        let (outcome, taken) = fed(&context, write(reading, PathId::MAIN), data.len(), &data, &[5000]).await;
        assert_eq!((code(outcome), taken), (ErrorCode::FILE_NOT_OPEN, data.len()));
        let (outcome, taken) = fed(&context, write(reading, PathId(3)), data.len(), &data, &[5000]).await;
        assert!(taken == 0 && outcome.err().unwrap().closes);
        let segments = vec![Segment { handle: reading, len: 5, offset: 0 }];
        let (outcome, taken) = fed(&context, WriteV { syncs: false, segments }, 0, &data[..5], &[3]).await;
        assert!(taken == Segment::BYTES && outcome.err().unwrap().closes);
        let too_many = vec![Segment { handle: reading, len: 0, offset: 0 }; 1025];
        let (outcome, taken) = fed(&context, WriteV { syncs: false, segments: too_many }, 0, &[], &[3]).await;
        assert_eq!(taken, 0);
        assert!(outcome.as_ref().err().unwrap().closes);
        assert_eq!(code(outcome), ErrorCode::ARG_TOO_LONG);
        for kind in [ChkpointKind::BEGIN, ChkpointKind::COMMIT] {
            let chkpoint = Chkpoint { handle: reading, kind, inner: Vec::new() };
            assert_eq!(code(fed(&context, chkpoint, 0, &[], &[1]).await.0), ErrorCode::UNSUPPORTED);
        }
    });
}

#[test]
fn a_close_waits_for_requests_that_use_the_file() {
    runtime().block_on(async {
        let context = context();
        let handle = opened(&context, "/d/new", NEW).await;
        let user = context.session.files.get(handle, "").unwrap();
        let request = Close { handle };
        let mut closing = std::pin::pin!(close::close(&context, &request));
        tokio::select! {
            biased;
            _ = &mut closing => panic!("closed while it is used"),
            () = tokio::task::yield_now() => {}
        }
        // To others it is closed already.
        assert!(context.session.files.get(handle, "").is_err());
        drop(user);
        assert!(closing.await.is_ok());
        // It is locked no longer.
        opened(&context, "/d/new", OpenOptions::UPDATE).await;
        let reader = opened(&context, "/d/f", OpenOptions::READ).await;
        close::end_all(&context).await;
        assert!(context.session.files.get(reader, "").is_err());
        assert_eq!(context.session.files.count(), 0);
    });
}
