//! Macaroons: made by this site for whoever proves who they are, attenuated by whoever holds them.

/// The secrets that macaroons are made with: the first makes new ones, all are believed.
#[derive(Clone, Debug)]
pub struct Keys {}
