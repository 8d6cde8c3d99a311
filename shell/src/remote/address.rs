//! Where a server is, and as whom to connect.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Where PostgreSQL's clients look for a server that names no port.
const PORT: u16 = 5432;
/// A host that does not answer is not waited for as long as the operating system would.
const CONNECTING: Duration = Duration::from_secs(10);

/// Where to connect, and as whom.
#[derive(Debug, Clone)]
pub struct Address {
    /// All of it but the password, which is only given to servers that may have it.
    pub config: Config,
    /// From the address or `PGPASSWORD`.
    pub password: Option<Vec<u8>>,
    /// Whether only this machine is reached.
    pub is_loopback: bool,
}

impl Address {
    /// `host`, `host:port`, `user@host:port` or `postgresql://user:password@host:port`.
    pub fn parse(text: &str) -> Result<Address, String> {
        let mut given = match text.contains("://") {
            true => text.parse::<Config>().map_err(|error| cause(&error))?,
            false => plain(text)?,
        };
        if given.get_hosts().is_empty() {
            return Err("it names no host, as in localhost:5432".to_owned());
        }
        if given.get_user().is_none() {
            let names = ["PGUSER", "USER"].iter();
            let user = names.filter_map(|name| std::env::var(name).ok()).next();
            given.user(user.unwrap_or_else(|| "skewer".to_owned()));
        }
        if given.get_connect_timeout().is_none() {
            given.connect_timeout(CONNECTING);
        }
        given.application_name("skewer");
        let hosts = given.get_hosts().iter().all(is_loopback);
        let is_loopback = hosts && given.get_hostaddrs().iter().all(IpAddr::is_loopback);
        if !is_loopback && given.get_ssl_mode() == SslMode::Disable {
            return Err(
                "without TLS (sslmode=disable) only this machine is connected to".to_owned(),
            );
        }
        let password = given.get_password().map(<[u8]>::to_vec);
        let password =
            password.or_else(|| std::env::var("PGPASSWORD").ok().map(String::into_bytes));
        Ok(Address {
            config: without_password(&given),
            password,
            is_loopback,
        })
    }

    /// For people: without what is secret.
    pub fn shown(&self) -> String {
        let hosts = self.config.get_hosts().iter().enumerate().map(|(n, host)| {
            let ports = self.config.get_ports();
            let port = ports.get(n).or(ports.first()).unwrap_or(&PORT);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(directory) => directory.display().to_string(),
            }
        });
        hosts.collect::<Vec<_>>().join(",")
    }
}

/// An address that is no URL.
fn plain(text: &str) -> Result<Config, String> {
    let mut config = Config::new();
    let place = match text.rsplit_once('@') {
        Some((user, place)) => {
            config.user(user);
            place
        }
        None => text,
    };
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address without brackets names no port.
        _ if place.parse::<IpAddr>().is_ok() => (place, PORT),
        Some((host, port)) => {
            let port = port.parse().map_err(|_| format!("{port} is not a port"))?;
            (host, port)
        }
        None => (place, PORT),
    };
    let host = host.trim_matches(['[', ']']);
    if !host.is_empty() {
        config.host(host).port(port);
    }
    Ok(config)
}

/// The parts of `given` that say where to and as whom: there is no way to take a password out.
fn without_password(given: &Config) -> Config {
    let mut config = Config::new();
    for host in given.get_hosts() {
        match host {
            Host::Tcp(name) => config.host(name),
            #[cfg(unix)]
            Host::Unix(directory) => config.host_path(directory),
        };
    }
    for address in given.get_hostaddrs() {
        config.hostaddr(*address);
    }
    for port in given.get_ports() {
        config.port(*port);
    }
    if let Some(user) = given.get_user() {
        config.user(user);
    }
    if let Some(name) = given.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = given.get_options() {
        config.options(options);
    }
    if let Some(timeout) = given.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(name) = given.get_application_name() {
        config.application_name(name);
    }
    config
        .ssl_mode(given.get_ssl_mode())
        .ssl_negotiation(given.get_ssl_negotiation())
        .channel_binding(given.get_channel_binding());
    config
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// What is wrong with a URL.
fn cause(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn addresses_have_several_forms_and_never_show_a_password() {
        for (text, shown) in [
            ("localhost", "localhost:5432"),
            ("127.0.0.1:5433", "127.0.0.1:5433"),
            ("ada@db.example:1", "db.example:1"),
            ("::1", "[::1]:5432"),
            ("[::1]:5433", "[::1]:5433"),
            (
                "postgresql://ada:secret@h:7/skewer?connect_timeout=3",
                "h:7",
            ),
            ("postgresql://h/?password=secret", "h:5432"),
        ] {
            assert_eq!(parse(text).shown(), shown, "{text}");
        }
        assert_eq!(parse("ada@h").config.get_user(), Some("ada"));
        let url = parse("postgresql://ada:l%C3%B6ve@h");
        assert_eq!(url.password.as_deref(), Some("löve".as_bytes()));
        assert_eq!(url.config.get_password(), None);
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "names no host"),
            ("h:port", "port is not a port"),
            ("h:70000", "70000 is not a port"),
            ("postgresql://h?sslmode=maybe", "sslmode"),
            ("postgresql://h?sslmode=disable", "without TLS"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for text in ["localhost", "127.1.2.3", "[::1]:5432"] {
            assert!(parse(text).is_loopback, "{text}");
        }
        for text in [
            "0.0.0.0",
            "db.example",
            "postgresql://localhost?hostaddr=192.0.2.1",
            "postgresql://localhost,db.example",
        ] {
            assert!(!parse(text).is_loopback, "{text}");
        }
    }
}
