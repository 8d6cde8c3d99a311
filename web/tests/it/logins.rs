use std::path::PathBuf;
use std::sync::Arc;

use skewer::Database;
use skewer_server::Users;
use skewer_web::{WebError, WebOptions, WebServer};

use super::client::{Browser, no_users, serve};

const VIEW: &str = "/api/view/query?query_id=1";

#[tokio::test]
async fn a_token_opens_once_and_a_cookie_until_logout() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let stranger = Browser {
        address: served.address,
        cookie: None,
    };
    assert_eq!(stranger.get(VIEW).await.status, 401);
    assert_eq!(stranger.get("/api/sql/query?query_id=1").await.status, 401);
    let address = served.tickets.once("q/1");
    let (page, token) = address.split_once("#token=").unwrap();
    assert!(page.ends_with("/q/1"), "{page}");
    let body = format!("{{\"token\":\"{token}\"}}");
    let answer = stranger.post("/api/token", &body).await;
    assert_eq!(answer.status, 204);
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(
        stranger.post("/api/token", &body).await.status,
        401,
        "a token opens once"
    );
    let mut known = stranger.clone();
    known.keep_cookie(&answer);
    assert_eq!(known.get(VIEW).await.status, 200);
    assert_eq!(known.post("/api/logout", "").await.status, 204);
    assert_eq!(known.get(VIEW).await.status, 401);
}

#[tokio::test]
async fn a_lasting_token_opens_more_than_once() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let browser = Browser {
        address: served.address,
        cookie: None,
    };
    let address = served.tickets.lasting("");
    let body = format!(
        "{{\"token\":\"{}\"}}",
        address.split_once("#token=").unwrap().1
    );
    for _ in 0..2 {
        assert_eq!(browser.post("/api/token", &body).await.status, 204);
    }
}

#[tokio::test]
async fn users_log_in_with_their_passwords_and_guessing_is_slow() {
    let data = tempfile::tempdir().unwrap();
    Users::add(data.path(), "ada", "correct horse").unwrap();
    let options = WebOptions {
        data: Some(data.path().to_owned()),
        ..no_users()
    };
    let limiter = Arc::clone(&options.limiter);
    let served = serve(Database::in_memory().unwrap(), options).await;
    let mut browser = Browser {
        address: served.address,
        cookie: None,
    };
    let login =
        |user: &str, password: &str| format!("{{\"user\":\"{user}\",\"password\":\"{password}\"}}");
    for (user, password) in [("ada", "wrong"), ("nobody", "correct horse"), ("ada", "")] {
        let answer = browser.post("/api/login", &login(user, password)).await;
        assert_eq!(answer.status, 401, "{user}");
        assert_eq!(answer.header("set-cookie"), "");
    }
    let answer = browser
        .post("/api/login", &login("ada", "correct horse"))
        .await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    browser.keep_cookie(&answer);
    assert_eq!(browser.get(VIEW).await.status, 200);
    // The SQL port shares the limiter: failures there count here.
    for _ in 0..6 {
        limiter.failed(browser.address.ip());
    }
    let answer = browser
        .post("/api/login", &login("ada", "correct horse"))
        .await;
    assert_eq!(answer.status, 429);
    assert!(
        answer.text().contains("too many failed logins"),
        "{}",
        answer.text()
    );
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(browser.get(VIEW).await.status, 200, "who is in stays in");
}

#[tokio::test]
async fn beyond_this_machine_there_must_be_users() {
    let data = tempfile::tempdir().unwrap();
    let options = |data: PathBuf| WebOptions {
        listen: "0.0.0.0:0".to_owned(),
        data: Some(data),
        ..no_users()
    };
    let database = Database::in_memory().unwrap();
    let refused = WebServer::bind(database.clone(), options(data.path().to_owned())).await;
    let refused = refused.err().unwrap();
    assert!(matches!(refused, WebError::NoUsers { .. }), "{refused}");
    Users::add(data.path(), "ada", "correct horse").unwrap();
    let server = WebServer::bind(database, options(data.path().to_owned()))
        .await
        .unwrap();
    assert!(
        server.address().starts_with("https://"),
        "{}",
        server.address()
    );
}
