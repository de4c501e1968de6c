//! Third-party copies: their requests, and the markers of their answers.

use gridlane_core::limits;
use gridlane_dav::third_party::{
    CopyRequest, Direction, Ending, Event, MarkerReader, failure, is_third_party,
};

use crate::fields::fields;
use crate::random::Random;

/// The fields of a COPY.
pub(crate) fn copy_request(data: &[u8]) {
    let headers = fields(data);
    let is_marked = is_third_party(&headers);
    let request = match CopyRequest::parse(&headers) {
        Ok(Some(request)) => request,
        Ok(None) => {
            assert!(headers.contains("destination") && !headers.contains("source"));
            return;
        }
        Err(rejection) => {
            assert!(matches!(rejection.status.code(), 400 | 501), "{rejection:?}");
            assert!(!rejection.message.contains('\n'));
            return;
        }
    };
    let is_push = request.direction == Direction::Push;
    assert!(is_push || is_marked, "a pull is answered with markers");
    assert_eq!(request.remotes.len(), headers.all(if is_push { "destination" } else { "source" }).count());
    assert!((1..=limits::SOURCES_MAX).contains(&request.remotes.len()));
    assert!(request.remotes[0].url.scheme().is_http());
    assert!(request.streams.is_none_or(|streams| (1..=limits::COPY_STREAMS_MAX).contains(&streams)));
    assert!(request.scitag.is_none_or(|scitag| scitag > 64));
    let mut bytes = 0;
    for (at, remote) in request.remotes.iter().enumerate() {
        assert!(!remote.url.scheme().name().is_empty() && !remote.url.host().is_empty());
        assert_eq!(remote.url.credentials(), None);
        for (nth, field) in remote.fields.iter().enumerate() {
            let (name, value) = (field.name.to_ascii_lowercase(), field.value.expose());
            assert!(!value.contains(['\r', '\n', '\0']) && !name.contains(['\r', '\n', ':', ' ']));
            assert!(
                !["host", "content-length", "transfer-encoding", "connection", "range"].contains(&&*name)
            );
            assert!(!remote.fields[..nth].iter().any(|other| other.name.eq_ignore_ascii_case(&name)));
            bytes += name.len() + value.len();
            // Nothing goes to a server for which it was not said.
            let own = format!("sourceheader{}{name}", at + 1);
            let for_first = remote.url.same_endpoint(&request.remotes[0].url);
            assert!(
                headers.contains(&own)
                    || for_first
                        && (headers.contains(&format!("transferheader{name}"))
                            || headers.contains("copy-header")),
                "{name} for {}",
                at + 1
            );
        }
    }
    assert!(bytes <= limits::COPY_FIELDS_BYTES_MAX);
}

fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let (mut reader, mut events) = (MarkerReader::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while let Some(event) = reader.next(&mut rest) {
            events.push(event);
        }
        assert!(rest.is_empty());
    }
    events.extend(reader.finish());
    assert_eq!(reader.is_ended(), matches!(events.last(), Some(Event::End(_))));
    events
}

/// The body of an answer.
pub(crate) fn copy_markers(data: &[u8]) {
    let events = read(&[data]);
    let mut random = Random::of(data);
    for _ in 0..3 {
        assert_eq!(read(&random.pieces(data)), events, "it depends on the pieces");
    }
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::End(ending) => {
                assert_eq!(at, events.len() - 1, "something is behind the end");
                if let Ending::Failure(cause) = ending {
                    assert!(!cause.contains(char::is_control) && !cause.is_empty());
                    let again = read(&[failure(cause).as_bytes()]);
                    assert!(matches!(again[..], [Event::End(Ending::Failure(_))]), "{again:?}");
                }
            }
            Event::Marker(progress) => {
                assert!((1..=limits::MARKER_STRIPES_MAX).contains(&(progress.total_stripes as usize)));
                let texts = [&progress.state, &progress.description].into_iter().flatten();
                for text in texts.chain(&progress.remote_connections) {
                    assert!(
                        text.len() <= 3 * limits::MARKER_LINE_BYTES_MAX && !text.contains(char::is_control)
                    );
                }
            }
        }
    }
}
