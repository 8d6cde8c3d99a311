use super::client::{Browser, no_users, serve};

use skewer::Database;

#[tokio::test]
async fn every_path_of_the_page_is_the_page_and_nothing_may_be_loaded_from_elsewhere() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let browser = Browser {
        address: served.address,
        cookie: None,
    };
    for path in ["/", "/q/12", "/q/12?tab=traces", "/cluster", "/nosuch"] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.text().contains("<script src=\"/app.js\" defer>"),
            "{path}"
        );
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin");
    }
    for (path, kind) in [
        ("/app.js", "text/javascript"),
        ("/records.js", "text/javascript"),
        ("/app.css", "text/css"),
    ] {
        let answer = browser.get(path).await;
        assert!(answer.header("content-type").starts_with(kind), "{path}");
        let again = [("if-none-match", answer.header("etag"))];
        assert_eq!(
            browser.ask("GET", path, &again, "").await.status,
            304,
            "{path}"
        );
        let zipped = browser
            .ask("GET", path, &[("accept-encoding", "gzip, br")], "")
            .await;
        assert_eq!(zipped.header("content-encoding"), "gzip");
        assert!(zipped.body.len() < answer.body.len(), "{path}");
    }
}

#[tokio::test]
async fn other_hosts_other_sites_and_other_methods_are_refused() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let browser = Browser {
        address: served.address,
        cookie: None,
    };
    let rebound = browser
        .ask("GET", "/", &[("host", "evil.example")], "")
        .await;
    assert_eq!(rebound.status, 421);
    assert!(rebound.text().contains("--http-host"), "{}", rebound.text());
    let foreign = [
        ("content-type", "application/json"),
        ("x-skewer", "1"),
        ("origin", "http://evil.example"),
    ];
    let answer = browser
        .ask("POST", "/api/token", &foreign, "{\"token\":\"x\"}")
        .await;
    assert_eq!(answer.status, 403);
    let plain = [("content-type", "application/json")];
    assert_eq!(
        browser
            .ask("POST", "/api/cancel", &plain, "{}")
            .await
            .status,
        403
    );
    assert_eq!(browser.ask("GET", "/api/logout", &[], "").await.status, 405);
    assert_eq!(browser.get("/api/nosuch").await.status, 404);
}
