//! Who may look: a one-time token in the address that the server printed, or a user with a password. Either is
//! exchanged for a cookie that scripts cannot read.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
        let Some(data) = shared.data.clone() else {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                "this database has no users: use the address with the token",
            ));
        };
        // Hashing takes milliseconds by design.
        let accepted = tokio::task::spawn_blocking(move || {
            Users::read(&data).map(|users| users.accepts(&given.user, &given.password))
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
    })
    .await
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
        let seconds = wait.as_secs() + 1;
        let text = format!("too many failed logins from this address: try again in {seconds} s");
        return (
            StatusCode::TOO_MANY_REQUESTS,
            [(RETRY_AFTER, seconds.to_string())],
            text,
        )
            .into_response();
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

/// `POST /api/logout`
pub(crate) async fn logout(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie_of(&shared, &headers) {
        shared.logins.remove(&cookie);
    }
    set_cookie(&shared, "", 0)
}
