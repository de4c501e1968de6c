//! Requests over HTTP: their methods, and the checks before them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use gridlane_auth::Operation;
use gridlane_dav::request::{RequestHead, Target};
use gridlane_dav::{Method, ResourcePath, Status};
use gridlane_store::StoreError;

use crate::export::Place;
use crate::origin::Origin;
use crate::recent::Recent;
use crate::storage_service::StorageService;
use crate::{
    conditions, copy_request, delete, get, macaroons, mkcol, options, propfind, proppatch, put, relocate,
};
use gridlane_front::body::{Body, Wire};
use gridlane_front::disconnect::while_connected;
use gridlane_front::reply::Reply;
use gridlane_front::service::Exchange;

/// Answers a request by its method and target; a PUT reads its body here.
pub(crate) async fn answer(service: &StorageService, exchange: Exchange<'_, Recent>) -> Reply {
    let Exchange { head, body, wire, client, macaroon, began, id, phase, kept: recent } = exchange;
    let path = match (&head.method, &head.target) {
        (Method::Unknown(_), _) => {
            return Reply::failure(Status::NOT_IMPLEMENTED, "the server does not know this method");
        }
        (Method::Options, Target::Server) => return options::of_server(service),
        (_, Target::Resource { path, .. }) => path,
        (_, Target::Server) => return options::not_allowed(service, head, &Place::Nowhere),
    };
    // Like everything that most requests are not about, this is kept elsewhere: what is made here for every request
    // would have room for it, and is copied.
    if service.front.auth.macaroons.is_some()
        && let Some(reply) =
            Box::pin(macaroons::answer(service, wire, head, path, client, macaroon, body)).await
    {
        return match reply.status {
            Status::UNAUTHORIZED => service.front.auth_methods.challenged(reply),
            _ => reply,
        };
    }
    recent.forget_old(began);
    let place = service.exports.find(path, client);
    let operations: &[Operation] = match head.method {
        Method::Options => return options::answer(service, &place),
        Method::Post | Method::Lock | Method::Unlock | Method::Other(_) | Method::Unknown(_) => {
            return options::not_allowed(service, head, &place);
        }
        Method::Get | Method::Head | Method::Propfind => &[Operation::Stat],
        Method::Copy if copy_request::is_pull(head) => &[Operation::Create, Operation::Overwrite],
        Method::Copy => &[Operation::Read],
        Method::Put => &[Operation::Create, Operation::Overwrite],
        Method::Proppatch => &[Operation::Overwrite],
        Method::Mkcol => &[Operation::Mkdir],
        Method::Delete => &[Operation::Delete],
        Method::Move => &[Operation::Rename],
    };
    let spot = match place {
        Place::Inside(spot) => spot,
        Place::Above(names)
            if names.is_empty() && matches!(head.method, Method::Get | Method::Head | Method::Propfind) =>
        {
            return service.exports.nothing_to_see(path, client);
        }
        Place::Above(names) => {
            return Box::pin(above(service, wire, head, path, names, body)).await;
        }
        Place::Nowhere if matches!(head.method, Method::Put | Method::Mkcol) => {
            let what = "no export has this path, or a name in it is gridlane's own ('.gridlane', '.NAME.gridlane-part')";
            return Reply::failure(Status::FORBIDDEN, what);
        }
        Place::Nowhere => return Reply::store_failure(&StoreError::NotFound),
    };
    if let Err(refusal) = spot.check_any(operations) {
        return refusal;
    }
    let origin = Origin::new(head, wire.stream.is_tls());
    if head.headers.contains("if") {
        let checked = Box::pin(conditions::check_if(service, head, &origin, &spot)).await;
        if let Err(refusal) = checked {
            return refusal;
        }
    }
    if !matches!(head.method, Method::Get | Method::Head) {
        // It may take long, and may be about the same file.
        recent.forget();
    }
    match head.method {
        Method::Get | Method::Head => {
            let (recent, began) = (&mut *recent, began);
            let mut answer = pin!(get::answer(service, head, path, &spot, &origin, recent, began));
            // Mostly it is there at once, and the client's leaving need not be watched for.
            match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(reply) => reply,
                // A checksum may take half an hour, and a client that left does not want it any longer.
                Poll::Pending => Box::pin(while_connected(&wire.stream, answer)).await,
            }
        }
        Method::Put => Box::pin(put::answer(service, wire, head, path, &spot, body)).await,
        Method::Delete => Box::pin(delete::answer(head, path, &spot)).await,
        Method::Propfind => Box::pin(propfind::answer(service, wire, head, path, &spot, body)).await,
        Method::Proppatch => Box::pin(proppatch::answer(service, wire, head, path, &spot, body)).await,
        Method::Mkcol => Box::pin(mkcol::answer(service, head, spot)).await,
        Method::Copy | Method::Move => {
            let stream = &wire.stream;
            if head.method == Method::Copy {
                let request = copy_request::Request {
                    service,
                    head,
                    path,
                    spot: &spot,
                    origin: &origin,
                    stream,
                    id,
                    phase,
                };
                if let Some(reply) = Box::pin(copy_request::answer(request)).await {
                    return reply;
                }
            }
            Box::pin(while_connected(stream, relocate::answer(service, head, path, &spot, &origin))).await
        }
        _ => options::not_allowed(service, head, &Place::Inside(spot)),
    }
}

/// The answer for a directory that exists only because exports are below it.
async fn above(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    names: Vec<Vec<u8>>,
    body: &mut Body,
) -> Reply {
    match head.method {
        Method::Get | Method::Head => get::above(head, path, &names),
        Method::Propfind => propfind::above(service, wire, head, path, &names, body).await,
        Method::Mkcol => options::exists(service, &Place::Above(names)),
        _ => Reply::failure(Status::FORBIDDEN, "there is no export at this path, only below it"),
    }
}
