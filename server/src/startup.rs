//! Who a client is, and whether it may come in.

use futures::{SinkExt, StreamExt};
use pgwire::api::auth::protocol_negotiation;
use pgwire::api::auth::sasl::scram::ScramServerAuth;
use pgwire::api::auth::sasl::{SCRAM_SHA_256_METHOD, SCRAM_SHA_256_PLUS_METHOD};
use pgwire::api::{ClientInfo, PgWireConnectionState};
use pgwire::messages::response::ReadyForQuery;
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, ParameterStatus, PasswordMessageFamily, Startup,
};
use pgwire::messages::{PgWireBackendMessage as Backend, PgWireFrontendMessage as Frontend};
use skewer::Session;

use crate::cancel::Registered;
use crate::connection::{Broken, Failure, Socket};
use crate::error::SqlError;
use crate::server::Shared;
use crate::settings::{self, Settings};
use crate::users::Users;

/// A client that has been let in.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) session: Session,
    pub(crate) settings: Settings,
    pub(crate) user: String,
    pub(crate) registered: Registered,
}

/// Reads the first messages. `None` if it was a request to cancel something, or the client was
/// turned away.
pub(crate) async fn admit(mut socket: Socket, shared: &Shared) -> Result<Option<Client>, Broken> {
    match begin(&mut socket, shared).await {
        Ok(Some((user, session, settings, registered))) => Ok(Some(Client {
            socket,
            session,
            settings,
            user,
            registered,
        })),
        Ok(None) => Ok(None),
        Err(Failure::Broken(broken)) => Err(broken),
        Err(Failure::Sql(error)) => {
            tracing::warn!(
                peer = %socket.socket_addr(),
                code = error.code,
                error = error.message,
                "a client was turned away"
            );
            let mut error = *error;
            error.fatal = true;
            socket
                .send(Backend::ErrorResponse(error.info().into()))
                .await?;
            Ok(None)
        }
    }
}

type Admitted = (String, Session, Settings, Registered);

async fn begin(socket: &mut Socket, shared: &Shared) -> Result<Option<Admitted>, Failure> {
    let startup = match socket.next().await {
        None => return Ok(None),
        Some(Ok(Frontend::CancelRequest(request))) => {
            let known = shared.connections.cancel(request.pid, &request.secret_key);
            tracing::info!(process = request.pid, known, "asked to cancel");
            return Ok(None);
        }
        Some(Ok(Frontend::Startup(startup))) => startup,
        Some(Ok(_)) => return Err(SqlError::protocol("this is no beginning").into()),
        Some(Err(error)) => return Err(error.into()),
    };
    if *shared.draining.borrow() {
        return Err(SqlError::new("57P03", "the server is ending").into());
    }
    protocol_negotiation(socket, &startup).await?;
    let user = startup.parameters.get("user").cloned().unwrap_or_default();
    if shared.connections.count() >= shared.max_connections {
        let text = format!(
            "too many clients: {} are connected, and --max-connections allows no more",
            shared.max_connections
        );
        return Err(SqlError::new("53300", text).into());
    }
    authenticate_in_turn(socket, shared, &user).await?;
    let session = shared.database.session();
    let mut settings = Settings::default();
    settings.set_user(&user);
    let zone = apply(&startup, &session, &mut settings).await?;
    let registered = shared.connections.register(socket.protocol_version());
    socket
        .feed(Backend::Authentication(Authentication::Ok))
        .await?;
    for (name, value) in settings.reported().chain([("TimeZone", zone)]) {
        let status = ParameterStatus::new(name.to_owned(), value);
        socket.feed(Backend::ParameterStatus(status)).await?;
    }
    let key = BackendKeyData::new(registered.process, registered.secret.clone());
    socket.feed(Backend::BackendKeyData(key)).await?;
    let ready = ReadyForQuery::new(TransactionStatus::Idle);
    socket.send(Backend::ReadyForQuery(ready)).await?;
    socket.set_state(PgWireConnectionState::ReadyForQuery);
    Ok(Some((user, session, settings, registered)))
}

/// Lets an address try that has not failed too often, and counts its failures.
async fn authenticate_in_turn(
    socket: &mut Socket,
    shared: &Shared,
    user: &str,
) -> Result<(), Failure> {
    let address = socket.socket_addr().ip();
    if let Err(wait) = shared.limiter.may_try(address) {
        let seconds = wait.as_secs() + 1;
        let text = "too many failed logins from this address";
        let error = SqlError::new("28P01", text);
        return Err(error.hint(format!("try again in {seconds} s")).into());
    }
    let outcome = authenticate(socket, shared, user).await;
    match &outcome {
        Ok(()) => shared.limiter.succeeded(address),
        Err(Failure::Sql(error)) if error.code == "28P01" => shared.limiter.failed(address),
        Err(_) => {}
    }
    outcome
}

/// Makes sure that the client is who it says. Whoever reaches a server that only listens to its
/// own machine is believed as long as the database has no users.
async fn authenticate(socket: &mut Socket, shared: &Shared, user: &str) -> Result<(), Failure> {
    let users = Users::read(&shared.data).map_err(|error| {
        tracing::error!(%error, "the users cannot be read");
        SqlError::new("58030", "the server cannot read its users")
    })?;
    if !shared.loopback && !socket.is_secure() {
        let error = SqlError::new("28000", "this server takes only encrypted connections");
        return Err(error.hint("connect with sslmode=require").into());
    }
    if users.is_empty() && shared.loopback {
        return Ok(());
    }
    let wrong = || {
        SqlError::new(
            "28P01",
            format!("the password of user {user} is wrong, or there is no such user"),
        )
    };
    let (scram, mut methods) = match socket.is_secure() {
        true => (
            shared.tls.scram.clone(),
            vec![SCRAM_SHA_256_PLUS_METHOD.to_owned()],
        ),
        false => (ScramServerAuth::new(), Vec::new()),
    };
    methods.push(SCRAM_SHA_256_METHOD.to_owned());
    socket.set_state(PgWireConnectionState::AuthenticationInProgress);
    let ask = Authentication::SASL(methods.clone());
    socket.send(Backend::Authentication(ask)).await?;

    let first = password_message(socket).await?.into_sasl_initial_response();
    let first = first.map_err(|error| SqlError::protocol(error.to_string()))?;
    if !methods.contains(&first.auth_method) {
        return Err(SqlError::protocol("this way of authentication was not offered").into());
    }
    let secret = users.secret(user);
    let first = first.data.unwrap_or_default();
    let (answer, waiting) = scram
        .on_client_first_message_with_secret(&first, secret)
        .map_err(|error| SqlError::protocol(error.to_string()))?;
    let answer = Authentication::SASLContinue(answer.into());
    socket.send(Backend::Authentication(answer)).await?;

    let last = password_message(socket).await?.into_sasl_response();
    let last = last.map_err(|error| SqlError::protocol(error.to_string()))?;
    let answer = waiting
        .on_client_final_message(&last.data)
        .map_err(|_| wrong())?;
    let answer = Authentication::SASLFinal(answer.into());
    Ok(socket.feed(Backend::Authentication(answer)).await?)
}

async fn password_message(socket: &mut Socket) -> Result<PasswordMessageFamily, Failure> {
    match socket.next().await {
        Some(Ok(Frontend::PasswordMessageFamily(message))) => Ok(message),
        Some(Ok(_)) => Err(SqlError::protocol("a password was expected").into()),
        Some(Err(error)) => Err(error.into()),
        None => Err(Broken::Gone.into()),
    }
}

/// Settings that come with the first message; gives the time zone.
async fn apply(
    startup: &Startup,
    session: &Session,
    settings: &mut Settings,
) -> Result<String, Failure> {
    let mut zone = "UTC".to_owned();
    let options = startup.parameters.get("options").map_or("", String::as_str);
    let named = startup
        .parameters
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in named.chain(parse_options(options)) {
        let name = name.to_lowercase();
        match name.as_str() {
            "user" | "database" | "options" | "replication" => {}
            extension if extension.starts_with("_pq_.") => {}
            known if settings::is_known(known) => {
                settings.set(known, &value)?;
            }
            _ => {
                let text = value.replace('\'', "''");
                let sql = format!("SET {name} = '{text}'");
                let set = session.sql(&sql).await;
                set.map_err(|error| SqlError::of_engine(&error, ""))?;
                if name == "timezone" {
                    zone = value;
                }
            }
        }
    }
    Ok(zone)
}

/// `-c name=value --name=value`, with `\ ` for a space.
fn parse_options(options: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => words
                .last_mut()
                .into_iter()
                .for_each(|word| word.extend(chars.next())),
            ' ' => words.push(String::new()),
            other => words
                .last_mut()
                .into_iter()
                .for_each(|word| word.push(other)),
        }
    }
    let settings = words.iter().filter_map(|word| {
        let word = word.trim_start_matches("--");
        let word = word.strip_prefix("-c").unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.replace('-', "_"), value.to_owned()))
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_two_forms() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let parsed = parse_options("-c statement_timeout=5s -cjit=off --search-path=a\\ b");
        let expected = [
            pair("statement_timeout", "5s"),
            pair("jit", "off"),
            pair("search_path", "a b"),
        ];
        assert_eq!(parsed, expected);
    }
}
