//! Logging in, renewing, and exchanging.

use std::time::{Duration, Instant};

use gridlane_auth::oidc::{
    Client, DeviceFlow, DeviceGrant, Grant, IssuerWords, Provider, Step, TokenType, Tokens,
};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Secret};
use gridlane_net::Dialer;

use super::issuer::{Issuer, NoTokens, now_s, refused};
use super::settling::Unsettled;
use super::store::{Access, Login, Store, judge_name};

/// The wishes of who logs in.
#[derive(Clone, Debug)]
pub struct LoginSettings {
    /// The name of the login.
    pub name: String,
    /// The issuer, exactly as it calls itself.
    pub issuer: String,
    /// Who the issuer takes the program for.
    pub client: Client,
    /// True if nobody logs in: the client wants tokens of its own.
    pub is_client: bool,
    /// The scopes that are asked for.
    pub scope: Option<String>,
    /// The servers that tokens are to be for.
    pub audience: Option<String>,
}

/// A login that was made and is stored.
#[derive(Clone, Debug)]
pub struct NewLogin {
    /// The login.
    pub login: Login,
    /// The scopes that the issuer granted, if it says that they are others than those that were asked for.
    pub granted: Option<String>,
}

/// Logs in and stores the login. `show` gets the code and the page to show to the person, who is then waited for.
///
/// # Errors
/// `Denied` if the person does not allow it, or the issuer does not; `Timeout` when the code ends before.
pub async fn log_in(
    store: &Store,
    dialer: &Dialer,
    settings: LoginSettings,
    show: impl FnOnce(&DeviceGrant) -> Result<()>,
) -> Result<NewLogin> {
    judge_name(&settings.name)?;
    // What cannot be stored is told before the person has done anything.
    let lock = store.lock(&settings.name).await?;
    drop(store.room(&settings.name)?);
    drop(lock);
    let issuer = Issuer::find(dialer, &settings.issuer).await?;
    let LoginSettings { name, issuer: issuer_name, client, is_client, scope, audience } = settings;
    let (wanted, servers) = (scope.as_deref(), audience.as_deref());
    let tokens = match is_client {
        true => issuer.tokens(&client, Grant::Client, wanted, servers).await?,
        false => {
            let grant = issuer.device(&client, wanted, servers).await?;
            show(&grant)?;
            allowed(&issuer, &client, &grant).await?
        }
    };
    let granted = tokens.scope.clone().filter(|granted| Some(granted.as_str()) != wanted);
    let mut login =
        Login { name, issuer: issuer_name, client, is_client, scope, audience, refresh: None, access: None };
    login.take(tokens, now_s());
    let _lock = store.lock(&login.name).await?;
    store.write(&login)?;
    Ok(NewLogin { login, granted })
}

/// Waits until the person has allowed a login.
async fn allowed(issuer: &Issuer, client: &Client, grant: &DeviceGrant) -> Result<Tokens> {
    let began = Instant::now();
    let mut flow = DeviceFlow::new(grant, Duration::ZERO);
    loop {
        match flow.step(began.elapsed()) {
            Step::Wait(wait) => tokio::time::sleep(wait).await,
            Step::Expired => return Err(not_allowed_in_time(grant)),
            Step::Ask => match issuer.try_tokens(client, Grant::Device(&grant.code), None, None).await {
                Ok(Ok(tokens)) => return Ok(tokens),
                Ok(Err(words)) if flow.pending(&words, began.elapsed()) => {}
                Ok(Err(words)) => return Err(not_allowed(&words, issuer, grant)),
                Err(none) if none.error.is_retryable() => flow.unreached(began.elapsed()),
                Err(none) => return Err(none.error),
            },
        }
    }
}

fn not_allowed(words: &IssuerWords, issuer: &Issuer, grant: &DeviceGrant) -> Error {
    match words.error.as_str() {
        "access_denied" => {
            Error::new(ErrorKind::Denied, format!("the login was not allowed: the issuer says {words}"))
                .fault(Fault::Caller)
                .endpoint(&issuer.provider.issuer)
        }
        "expired_token" => not_allowed_in_time(grant),
        _ => refused(words, &issuer.provider.token),
    }
}

fn not_allowed_in_time(grant: &DeviceGrant) -> Error {
    let message = format!("nobody allowed the login at {} within {} s", grant.page, grant.lasts_s);
    Error::new(ErrorKind::Timeout, message).fault(Fault::Caller)
}

/// An access token of a login that is good until `until_s` (in seconds since 1970) at least, or a new one, which may end
/// earlier; never `but`, which a server has refused. The login is renewed by one process at a time; what another one got
/// meanwhile is taken.
///
/// `provider` has the issuer's services, once they are known.
///
/// # Errors
/// `Denied` with the issuer's words when the login is over; otherwise why the issuer could not be asked.
pub async fn renew(
    store: &Store,
    dialer: &Dialer,
    name: &str,
    provider: &mut Option<Provider>,
    until_s: i64,
    but: Option<&Secret>,
) -> Result<Access> {
    let is_good =
        |access: &Access| Some(&access.secret) != but && access.ends_s.is_none_or(|ends_s| ends_s >= until_s);
    if let Some(access) = store.read(name)?.access.filter(is_good) {
        return Ok(access);
    }
    let _lock = store.lock(name).await?;
    let mut login = store.read(name)?;
    if let Some(access) = login.access.take_if(|access| is_good(access)) {
        return Ok(access);
    }
    let grant = match &login.refresh {
        Some(refresh) => Grant::Refresh(refresh),
        None if login.is_client => Grant::Client,
        None => {
            let message = format!("the login {name:?} has no refresh token, so that it cannot be renewed");
            return Err(Error::new(ErrorKind::Denied, message)
                .fault(Fault::Caller)
                .hint("log in again, with offline_access among the scopes if the issuer has it"));
        }
    };
    let room = store.room(name)?;
    let issuer = match provider.clone().filter(|provider| provider.issuer == login.issuer) {
        Some(provider) => Issuer::known(dialer, provider),
        None => Issuer::find(dialer, &login.issuer).await?,
    };
    let unsettled = Unsettled::begin()?;
    // Without a scope a refresh token gives what it was given with (RFC 6749, 6).
    let scope = login.scope.as_deref().filter(|_| login.is_client);
    let answer = issuer.tokens(&login.client, grant, scope, login.audience.as_deref()).await;
    let outcome = match answer {
        Ok(tokens) => {
            login.take(tokens, now_s());
            *provider = Some(issuer.provider);
            login.access.clone().ok_or_else(|| Error::new(ErrorKind::Other, "the issuer gave no token"))
        }
        Err(NoTokens { error, refresh: None }) => return Err(error),
        // Of an answer whose access token cannot be used the refresh token counts all the same.
        Err(NoTokens { error, refresh }) => {
            login.refresh = refresh;
            Err(error)
        }
    };
    let stored = room.fill(&login);
    drop(unsettled);
    stored.map_err(|error| {
        error.more("the refresh token that was used may be good no longer").hint(Hint::LogIn)
    })?;
    outcome
}

/// Exchanges an access token for another one: with fewer scopes, or for other servers (RFC 8693). The result is stored
/// nowhere.
pub async fn exchange(
    dialer: &Dialer,
    issuer: &str,
    client: &Client,
    subject: &Secret,
    wanted: TokenType,
    scope: Option<&str>,
    audience: Option<&str>,
) -> Result<Tokens> {
    let issuer = Issuer::find(dialer, issuer).await?;
    Ok(issuer.tokens(client, Grant::Exchange { subject, wanted }, scope, audience).await?)
}
