//! A browser of few words: one connection per request, a cookie.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skewer::Database;
use skewer::arrow::array::RecordBatch;
use skewer::arrow::ipc::reader::StreamReader;
use skewer_web::server::Tickets;
use skewer_web::{WebOptions, WebServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// No answer takes longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until this is dropped.
pub struct Served {
    pub database: Database,
    pub address: SocketAddr,
    pub tickets: Tickets,
    _stop: oneshot::Sender<()>,
}

pub async fn serve(database: Database, options: WebOptions) -> Served {
    let options = WebOptions {
        listen: "127.0.0.1:0".to_owned(),
        ..options
    };
    let server = WebServer::bind(database.clone(), options).await.unwrap();
    let (address, tickets) = (server.local_addr(), server.tickets());
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    Served {
        database,
        address,
        tickets,
        _stop: stop,
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn rows(&self) -> Vec<RecordBatch> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(
            self.header("content-type"),
            "application/vnd.apache.arrow.stream"
        );
        let reader = StreamReader::try_new(self.body.as_slice(), None).unwrap();
        reader.map(|batch| batch.unwrap()).collect()
    }
}

/// What a browser keeps.
#[derive(Debug, Clone)]
pub struct Browser {
    pub address: SocketAddr,
    pub cookie: Option<String>,
}

impl Browser {
    /// A browser that has opened an address with a token.
    pub async fn with_token(served: &Served) -> Self {
        let mut browser = Self {
            address: served.address,
            cookie: None,
        };
        let address = served.tickets.once("");
        let (_, token) = address.split_once("#token=").unwrap();
        let answer = browser
            .post("/api/token", &format!("{{\"token\":\"{token}\"}}"))
            .await;
        assert_eq!(answer.status, 204, "{}", answer.text());
        browser.keep_cookie(&answer);
        browser
    }

    pub fn keep_cookie(&mut self, answer: &Answer) {
        let cookie = answer.header("set-cookie").split(';').next().unwrap();
        self.cookie = Some(cookie.to_owned());
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/json"), ("x-skewer", "1")];
        self.ask("POST", path, &headers, body).await
    }

    /// A request with headers of its own; `host` replaces the right one.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let request = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
            if headers.iter().all(|(name, _)| *name != "host") {
                text.push_str(&format!("host: {}\r\n", self.address));
            }
            for (name, value) in headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            if let Some(cookie) = &self.cookie {
                text.push_str(&format!("cookie: other=1; {cookie}\r\n"));
            }
            text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(PATIENCE, request).await;
        parse(&answer.unwrap_or_else(|_| panic!("{method} {path} was not answered")))
    }
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = std::str::from_utf8(&answer[..end]).unwrap();
    let mut lines = head.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers: HashMap<String, String> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        })
        .collect();
    assert!(!headers.contains_key("transfer-encoding"), "{head}");
    Answer {
        status,
        headers,
        body: answer[end + 4..].to_vec(),
    }
}

/// A database with a query at level `records` whose slow row is known; gives its id.
pub async fn profiled() -> (Database, i64) {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    for sql in [
        "CREATE TABLE ratings AS SELECT value AS movie, repeat('5,4,', CAST(1 + value % 50 AS INT)) AS stars \
         FROM generate_series(0, 999)",
        "UPDATE ratings SET stars = repeat('5,4,', 300000) WHERE movie = 123",
        "EXPLAIN PROFILE SELECT star, count(*) FROM \
         (SELECT unnest(string_to_array(stars, ',')) AS star FROM ratings) GROUP BY star",
    ] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    (database, session.last_query_id().unwrap())
}

/// Shared settings of tests without users.
pub fn no_users() -> WebOptions {
    WebOptions {
        limiter: Arc::default(),
        ..WebOptions::default()
    }
}
