use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skewer::Database;
use skewer_server::Users;
use skewer_web::{MetricsToken, WebOptions};

use super::client::{Answer, Browser, Served, no_users, profiled, serve};

fn program(served: &Served) -> Browser {
    Browser {
        address: served.address,
        cookie: None,
    }
}

async fn with_authorization(served: &Served, value: &str) -> Answer {
    let headers = [("authorization", value)];
    program(served).ask("GET", "/metrics", &headers, "").await
}

async fn text(served: &Served) -> String {
    let browser = Browser::with_token(served).await;
    let answer = browser.get("/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    answer.text()
}

/// Families with their kinds, and series with their values, of a text that keeps the rules of OpenMetrics.
#[derive(Debug, Default)]
struct Parsed {
    kinds: BTreeMap<String, String>,
    help: BTreeMap<String, String>,
    series: BTreeMap<String, f64>,
}

impl Parsed {
    fn value(&self, series: &str) -> f64 {
        let value = self.series.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {:#?}", self.series))
    }

    /// The names of samples.
    fn names(&self) -> BTreeSet<&str> {
        let series = self.series.keys();
        series
            .map(|series| series.split('{').next().unwrap())
            .collect()
    }

    fn has_failed(&self, view: &str) -> bool {
        self.value(&format!("skewer_view_success{{view=\"{view}\"}}")) == 0.0
    }
}

/// Names and values of labels, which end with `}`; gives what is behind it.
fn after_labels(mut rest: &str) -> &str {
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(!name.is_empty() && name.chars().all(is_name), "{rest}");
        let mut characters = value.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (_, '\\') => {
                    let (_, escaped) = characters.next().unwrap();
                    assert!(matches!(escaped, '\\' | '"' | 'n'), "{rest}");
                }
                (at, '"') => break at,
                _ => {}
            }
        };
        let behind = &value[end + 1..];
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return behind.strip_prefix('}').unwrap(),
        }
    }
}

fn parse(text: &str) -> Parsed {
    let body = text.strip_suffix("# EOF\n").unwrap();
    let mut parsed = Parsed::default();
    let mut family = String::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<_> = comment.splitn(3, ' ').collect();
            let [word, name, rest] = words.as_slice() else {
                panic!("{line}");
            };
            match *word {
                "TYPE" => {
                    family = (*name).to_owned();
                    let again = parsed.kinds.insert(family.clone(), (*rest).to_owned());
                    assert_eq!(again, None, "{name} is not in one piece");
                }
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" => {
                    parsed.help.insert(family.clone(), (*rest).to_owned());
                }
                _ => panic!("OpenMetrics has no such comment: {line}"),
            }
            assert_eq!(*name, family, "{line}");
            continue;
        }
        let name_end = line.find(['{', ' ']).unwrap();
        let (name, rest) = line.split_at(name_end);
        let suffixes: &[&str] = match parsed.kinds[&family].as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        let suffix = name.strip_prefix(family.as_str()).unwrap();
        assert!(suffixes.contains(&suffix), "{line}");
        let value = match rest.strip_prefix('{') {
            Some(labels) => after_labels(labels),
            None => rest,
        };
        let series = line.strip_suffix(value).unwrap().to_owned();
        let value = value.strip_prefix(' ').unwrap();
        let again = parsed.series.insert(series, value.parse().unwrap());
        assert_eq!(again, None, "{line} is there twice");
    }
    parsed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_queries_are_counted_and_never_fall() {
    let (database, _) = profiled().await;
    let served = serve(database, no_users()).await;
    let before = parse(&text(&served).await);
    let session = served.database.session();
    let sql = "SELECT value FROM generate_series(1, 5)";
    session.sql(sql).await.unwrap().collect().await.unwrap();
    session.sql("SELECT * FROM nosuch").await.unwrap_err();
    session
        .sql("SET profile.retention_bytes = 0")
        .await
        .unwrap();
    let after = parse(&text(&served).await);
    let grew = |series: &str| after.value(series) - before.value(series);
    assert_eq!(grew("skewer_queries_total{status=\"finished\"}"), 1.0);
    assert_eq!(grew("skewer_queries_total{status=\"failed\"}"), 1.0);
    assert_eq!(grew("skewer_queries_total{status=\"cancelled\"}"), 0.0);
    assert_eq!(grew("skewer_query_rows_total{status=\"finished\"}"), 5.0);
    assert!(grew("skewer_query_planning_seconds_total{status=\"finished\"}") > 0.0);
    let histogram = "skewer_query_execution_seconds";
    assert_eq!(
        grew(&format!("{histogram}_count{{status=\"finished\"}}")),
        1.0
    );
    assert!(grew(&format!("{histogram}_sum{{status=\"finished\"}}")) > 0.0);
    let last = after.value(&format!(
        "{histogram}_bucket{{status=\"finished\",le=\"+Inf\"}}"
    ));
    let buckets: Vec<f64> = after
        .series
        .iter()
        .filter(|(series, _)| {
            series.starts_with(&format!("{histogram}_bucket{{status=\"finished\""))
        })
        .map(|(_, value)| *value)
        .collect();
    assert_eq!(buckets.len(), 17);
    assert!(buckets.iter().all(|bucket| *bucket <= last), "{buckets:?}");
    assert_eq!(
        last,
        after.value(&format!("{histogram}_count{{status=\"finished\"}}"))
    );
    assert_eq!(after.value("skewer_queries_running"), 0.0);
    assert_eq!(after.value("skewer_queries_queued"), 0.0);
    assert!(before.value("skewer_profiler_stored_bytes{worker=\"0\"}") >= 0.0);
    assert_eq!(
        before.value("skewer_profiler_dropped_events{worker=\"0\"}"),
        0.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_fails_leaves_out_its_families_alone() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let parsed = parse(&text(&served).await);
    let session = served.database.session();
    for (view, table, family) in [
        ("alerts", "sys.alerts", "skewer_alert"),
        ("links", "sys.links", "skewer_link_rtt_seconds"),
        ("nodes", "sys.node_metrics", ""),
        ("queries", "sys.query_totals", "skewer_queries"),
    ] {
        let is_there = session.sql(&format!("SELECT * FROM {table}")).await.is_ok();
        assert_eq!(parsed.has_failed(view), !is_there, "{view}");
        if !is_there && !family.is_empty() {
            let help = &parsed.help[family];
            assert!(help.contains("there is no table"), "{help}");
            assert!(parsed.names().iter().all(|name| *name != family));
        }
    }
    for view in ["execution", "profiler", "queries", "running"] {
        assert!(!parsed.has_failed(view), "{view}");
    }
}

#[tokio::test]
async fn programs_need_a_token_that_lasts() {
    let token = MetricsToken::new(" a token of this test \n").unwrap();
    let options = WebOptions {
        metrics_token: Some(token),
        ..no_users()
    };
    assert!(MetricsToken::new("short").is_none());
    let served = serve(Database::in_memory().unwrap(), options).await;
    let answer = program(&served).get("/metrics").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), "Bearer");
    let lasting = served.tickets.lasting("");
    let (_, lasting) = lasting.split_once("#token=").unwrap();
    for token in [lasting, "a token of this test"] {
        let answer = with_authorization(&served, &format!("Bearer {token}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let once = served.tickets.once("");
    let (_, once) = once.split_once("#token=").unwrap();
    for wrong in [
        &format!("Bearer {once}"),
        "Bearer ",
        "Bearer",
        "Basic YTpi",
        "Digest x",
    ] {
        assert_eq!(
            with_authorization(&served, wrong).await.status,
            401,
            "{wrong}"
        );
    }
    // The token for metrics opens nothing else.
    let headers = [("authorization", "Bearer a token of this test")];
    let path = "/api/view/query?query_id=1";
    let answer = program(&served).ask("GET", path, &headers, "").await;
    assert_eq!(answer.status, 401);
    // Guessing is as slow as at the login, also for whoever has a token by now.
    assert_eq!(with_authorization(&served, "Bearer x").await.status, 401);
    let answer = with_authorization(&served, "Bearer a token of this test").await;
    assert_eq!(answer.status, 429);
    let headers = [("authorization", "Bearer x"), ("host", "evil.example")];
    let answer = program(&served).ask("GET", "/metrics", &headers, "").await;
    assert_eq!(answer.status, 421);
}

#[tokio::test]
async fn programs_may_send_the_password_of_a_user() {
    let data = tempfile::tempdir().unwrap();
    Users::add(data.path(), "ada", "correct: horse").unwrap();
    let options = WebOptions {
        data: Some(data.path().to_owned()),
        ..no_users()
    };
    let served = serve(Database::in_memory().unwrap(), options).await;
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let answer = program(&served).get("/metrics").await;
    assert_eq!(
        answer.header("www-authenticate"),
        "Basic realm=\"skewer\", Bearer"
    );
    let answer = with_authorization(&served, &basic("ada:correct: horse")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for wrong in ["ada:correct", "eve:correct: horse", "ada", ""] {
        assert_eq!(with_authorization(&served, &basic(wrong)).await.status, 401);
    }
    assert_eq!(with_authorization(&served, "Basic ü").await.status, 401);
}

/// The names of metrics in a query of Prometheus.
fn names_in(query: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split(|c| !is_name(c));
    words.filter(|word| word.starts_with("skewer_")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_asks_for_series_that_are_there() {
    let (database, _) = profiled().await;
    let served = serve(database, no_users()).await;
    let parsed = parse(&text(&served).await);
    let mut known: BTreeSet<String> = parsed.names().into_iter().map(str::to_owned).collect();
    // Families without samples: no node is linked, no alert holds, or the table is missing.
    for (family, kind) in &parsed.kinds {
        let suffix = if kind == "counter" { "_total" } else { "" };
        known.insert(format!("{family}{suffix}"));
    }
    let sources = "SELECT DISTINCT metric FROM sys.metric_sources";
    let sources = served.database.session().query_as(sources).await;
    let sources: Option<Vec<(String,)>> = sources.ok();
    for (metric,) in sources.iter().flatten() {
        known.insert(format!("skewer_node_{metric}"));
    }
    let dashboard = include_str!("../../../docs/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{title}");
        let targets = panel["targets"].as_array();
        assert_eq!(targets.is_none(), panel["type"] == "row", "{title}");
        for target in targets.into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let names = names_in(query);
            assert!(!names.is_empty(), "{title}: {query}");
            assert!(
                query.contains("{instance=~\"$instance\""),
                "{title}: {query}"
            );
            for name in names {
                let is_unknown = sources.is_none() && name.starts_with("skewer_node_");
                assert!(is_unknown || known.contains(name), "{title}: no {name}");
                shown.insert(name.to_owned());
            }
        }
    }
    let variable = dashboard["templating"]["list"][1]["definition"].as_str();
    assert!(
        names_in(variable.unwrap())
            .iter()
            .all(|name| known.contains(*name))
    );
    // Whatever is there is shown.
    for (family, kind) in &parsed.kinds {
        let is_shown = shown.iter().any(|name| name.starts_with(family.as_str()));
        assert!(
            is_shown || kind == "info" || family.starts_with("skewer_node_"),
            "no panel shows {family}"
        );
    }
}
