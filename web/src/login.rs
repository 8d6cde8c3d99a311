//! Who may look: a one-time token in the address that the server printed, or a user with a password. Either is
//! exchanged for a cookie that scripts cannot read. Programs that read `/metrics` keep no cookies: they send a token
//! or a password with each request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde::Deserialize;
use skewer::Session;
use skewer_server::Users;
use tokio::sync::Semaphore;

use crate::error::Failure;
use crate::routes::Shared;

/// How long a login lasts.
const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// So many logins are kept; the oldest goes first.
const LOGINS: usize = 1_000;
/// So many views of one login run at once; more wait.
const VIEWS_AT_ONCE: usize = 4;

/// What a login has.
#[derive(Debug)]
pub(crate) struct Login {
    since: Instant,
    /// Runs views.
    pub(crate) session: Session,
    pub(crate) views: Semaphore,
}

/// The logins of a server, by cookie.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<HashMap<String, Arc<Login>>>);

/// Random letters that nobody guesses: 256 bits.
pub(crate) fn secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// A token that opens `/metrics` and nothing else.
#[derive(Clone)]
pub struct MetricsToken(String);

impl MetricsToken {
    /// So many characters are hard to guess.
    pub const SHORTEST: usize = 16;

    /// A token of at least [`MetricsToken::SHORTEST`] characters; space around it does not count.
    pub fn new(token: &str) -> Option<Self> {
        let token = token.trim();
        (token.len() >= Self::SHORTEST).then(|| Self(token.to_owned()))
    }
}

impl std::fmt::Debug for MetricsToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetricsToken")
    }
}

/// Tokens that nobody has exchanged yet, and those that are good for ever: at most [`LOGINS`].
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<(String, bool)>);

impl Tokens {
    /// Adds a token that is good `once`, or for ever.
    pub(crate) fn add(&mut self, token: String, once: bool) {
        if self.0.len() >= LOGINS {
            self.0.remove(0);
        }
        self.0.push((token, once));
    }

    /// Whether a token is one that is good for ever.
    fn has_lasting(&self, given: &str) -> bool {
        let mut lasting = self.0.iter().filter(|(_, once)| !once);
        lasting.any(|(token, _)| is_same(token, given))
    }

    fn exchange(&mut self, given: &str) -> bool {
        let Some(found) = self.0.iter().position(|(token, _)| is_same(token, given)) else {
            return false;
        };
        if self.0[found].1 {
            self.0.remove(found);
        }
        true
    }
}

impl Logins {
    fn find(&self, cookie: &str) -> Option<Arc<Login>> {
        let mut logins = self.0.lock();
        let login = logins.get(cookie).cloned()?;
        if login.since.elapsed() < LASTS {
            return Some(login);
        }
        logins.remove(cookie);
        None
    }

    fn add(&self, session: Session) -> String {
        let cookie = secret();
        let mut logins = self.0.lock();
        if logins.len() >= LOGINS {
            let oldest = logins.iter().min_by_key(|(_, login)| login.since);
            if let Some(oldest) = oldest.map(|(cookie, _)| cookie.clone()) {
                logins.remove(&oldest);
            }
        }
        let login = Login {
            since: Instant::now(),
            session,
            views: Semaphore::new(VIEWS_AT_ONCE),
        };
        logins.insert(cookie.clone(), Arc::new(login));
        cookie
    }

    fn remove(&self, cookie: &str) {
        self.0.lock().remove(cookie);
    }
}

/// The cookie's name has the port: servers on one machine share cookies otherwise, whatever their ports.
fn cookie_name(shared: &Shared) -> String {
    format!("skewer{}", shared.port)
}

fn cookie_of(shared: &Shared, headers: &HeaderMap) -> Option<String> {
    let name = cookie_name(shared);
    let cookies = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
}

fn set_cookie(shared: &Shared, value: &str, seconds: u64) -> Response {
    let secure = if shared.is_secure { "; Secure" } else { "" };
    let name = cookie_name(shared);
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}

fn welcome(shared: &Shared) -> Response {
    let session = shared.database.read_only_session(shared.limits);
    set_cookie(shared, &shared.logins.add(session), LASTS.as_secs())
}

/// Lets requests pass that have a login, and gives it to them.
pub(crate) async fn required(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    let login =
        cookie_of(&shared, request.headers()).and_then(|cookie| shared.logins.find(&cookie));
    match login {
        Some(login) => {
            request.extensions_mut().insert(login);
            next.run(request).await
        }
        None => Failure::new(StatusCode::UNAUTHORIZED, "log in first").into_response(),
    }
}

/// Lets requests for `/metrics` pass: of a login, or with a token or a user's password in `Authorization`.
pub(crate) async fn required_of_programs(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if cookie_of(&shared, headers).is_some_and(|cookie| shared.logins.find(&cookie).is_some()) {
        return next.run(request).await;
    }
    let given = headers.get(AUTHORIZATION).cloned();
    let Some(given) = given.as_ref().and_then(|value| value.to_str().ok()) else {
        return unauthorized(&shared, "log in first, or send a token or a password");
    };
    if let Err(wait) = shared.limiter.may_try(peer.ip()) {
        return too_many(wait);
    }
    match authorized(&shared, given).await {
        // Failed logins of the address still count: otherwise whoever has only this token could try passwords for ever.
        Ok(true) => next.run(request).await,
        Ok(false) => {
            shared.limiter.failed(peer.ip());
            tracing::warn!(%peer, "a request for /metrics had a wrong token or password");
            unauthorized(&shared, "the token or the password is not right")
        }
        Err(failure) => failure.into_response(),
    }
}

/// Whether the value of a header `Authorization` opens `/metrics`.
async fn authorized(shared: &Shared, given: &str) -> Result<bool, Failure> {
    let Some((scheme, given)) = given.split_once(' ') else {
        return Ok(false);
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        let for_metrics = shared.metrics_token.as_ref();
        return Ok(for_metrics.is_some_and(|token| is_same(&token.0, given))
            || shared.tokens.lock().has_lasting(given));
    }
    let decoded = STANDARD.decode(given).ok().map(String::from_utf8);
    let Some(Ok(decoded)) = decoded.filter(|_| scheme.eq_ignore_ascii_case("basic")) else {
        return Ok(false);
    };
    match (decoded.split_once(':'), &shared.data) {
        (Some((user, password)), Some(_)) => accepts(shared, user, password).await,
        _ => Ok(false),
    }
}

/// Refuses a program, and says how it can log in.
fn unauthorized(shared: &Shared, text: &str) -> Response {
    let scheme = match shared.data {
        Some(_) => "Basic realm=\"skewer\", Bearer",
        None => "Bearer",
    };
    let failure = Failure::new(StatusCode::UNAUTHORIZED, text);
    ([(WWW_AUTHENTICATE, scheme)], failure).into_response()
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Credentials {
    user: String,
    password: String,
}

/// `POST /api/login`
pub(crate) async fn by_password(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(given): Json<Credentials>,
) -> Response {
    limited(&shared, peer, async || {
        accepts(&shared, &given.user, &given.password).await
    })
    .await
}

/// Whether a user of the database has this password.
async fn accepts(shared: &Shared, user: &str, password: &str) -> Result<bool, Failure> {
    let Some(data) = shared.data.clone() else {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "this database has no users: use the address with the token",
        ));
    };
    let (user, password) = (user.to_owned(), password.to_owned());
    // Hashing takes milliseconds by design.
    let accepted = tokio::task::spawn_blocking(move || {
        Users::read(&data).map(|users| users.accepts(&user, &password))
    });
    match accepted.await {
        Ok(Ok(accepted)) => Ok(accepted),
        failed => {
            tracing::error!(?failed, "the users cannot be read");
            Err(Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server cannot read its users",
            ))
        }
    }
}

/// What the page takes from its address.
#[derive(Deserialize)]
pub(crate) struct Token {
    token: String,
}

/// `POST /api/token`
pub(crate) async fn by_token(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(given): Json<Token>,
) -> Response {
    limited(&shared, peer, async || {
        Ok(shared.tokens.lock().exchange(&given.token))
    })
    .await
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// Tries a login, unless its address has failed too often.
async fn limited(
    shared: &Shared,
    peer: SocketAddr,
    attempt: impl AsyncFnOnce() -> Result<bool, Failure>,
) -> Response {
    if let Err(wait) = shared.limiter.may_try(peer.ip()) {
        return too_many(wait);
    }
    match attempt().await {
        Ok(true) => {
            shared.limiter.succeeded(peer.ip());
            welcome(shared)
        }
        Ok(false) => {
            shared.limiter.failed(peer.ip());
            tracing::warn!(%peer, "a login at the web server failed");
            Failure::new(
                StatusCode::UNAUTHORIZED,
                "that is not right: check user and password, or open a fresh address",
            )
            .into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

/// Refuses an address that has to wait.
fn too_many(wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    let text = format!("too many failed logins from this address: try again in {seconds} s");
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(RETRY_AFTER, seconds.to_string())],
        text,
    )
        .into_response()
}

/// `POST /api/logout`
pub(crate) async fn logout(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie_of(&shared, &headers) {
        shared.logins.remove(&cookie);
    }
    set_cookie(&shared, "", 0)
}
