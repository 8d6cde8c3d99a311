//! Joins and groups of rows that are on one worker already.

use skewer::{Database, Session};

use super::{rows, table, workers_of_the_last_query};

const TABLES: &[&str] = &[
    "CREATE TABLE orders (id BIGINT, customer INT, day DATE) PARTITION BY HASH (id)",
    "CREATE TABLE items (item VARCHAR, order_id INT, price DOUBLE) PARTITION BY HASH (order_id)",
    "CREATE TABLE notes (day DATE, id BIGINT, text VARCHAR) PARTITION BY HASH (id, day)",
    "CREATE TABLE remarks (id BIGINT, day DATE, text VARCHAR) PARTITION BY HASH (id, day)",
    "CREATE TABLE anywhere (id BIGINT, name VARCHAR)",
    "INSERT INTO orders SELECT nullif(value % 500, 7), value % 40, DATE '2024-01-01' + CAST(value % 5 AS INT)
     FROM generate_series(1, 700)",
    "INSERT INTO items SELECT 'item ' || (value % 11), nullif(value % 600, 8), value / 4.0
     FROM generate_series(1, 2000)",
    "INSERT INTO notes SELECT DATE '2024-01-01' + CAST(value % 3 AS INT), value % 90, 'n' || value
     FROM generate_series(1, 300)",
    "INSERT INTO remarks SELECT value % 80, DATE '2024-01-01' + CAST(value % 4 AS INT), 'r' || value
     FROM generate_series(1, 300)",
    "INSERT INTO anywhere SELECT value, 'name ' || value FROM generate_series(1, 100)",
    "INSERT INTO orders VALUES (1000, 1, NULL), (NULL, 2, NULL)",
];

/// What needs no exchange but the one that brings the result together.
const TOGETHER: &[&str] = &[
    "SELECT count(*), sum(price) FROM orders JOIN items ON id = order_id",
    "SELECT count(*), count(price), count(id) FROM orders LEFT JOIN items ON id = order_id",
    "SELECT count(*), count(price), count(id) FROM orders RIGHT JOIN items ON id = order_id",
    "SELECT count(*), count(price), count(id) FROM orders FULL JOIN items ON id = order_id",
    "SELECT count(*) FROM orders WHERE EXISTS (SELECT 1 FROM items WHERE order_id = id)",
    "SELECT count(*) FROM orders WHERE NOT EXISTS (SELECT 1 FROM items WHERE order_id = id)",
    "SELECT count(*) FROM items WHERE EXISTS (SELECT 1 FROM orders WHERE order_id = id AND customer > 3)",
    "SELECT id, count(*), sum(price) FROM orders JOIN items ON id = order_id GROUP BY id ORDER BY id",
    "SELECT id, count(*) FROM orders GROUP BY id ORDER BY id",
    "SELECT DISTINCT id, customer FROM orders ORDER BY id, customer",
    "SELECT o.id, p.total FROM orders o JOIN
       (SELECT order_id, sum(price) AS total FROM items GROUP BY order_id) p ON o.id = p.order_id
     ORDER BY 1, 2",
    "SELECT count(*), sum(a.customer) FROM orders a JOIN items i ON a.id = i.order_id
       JOIN orders b ON b.id = i.order_id AND b.customer = a.customer",
    "SELECT n.id, n.day, count(*) FROM notes n JOIN remarks r ON n.day = r.day AND n.id = r.id
     GROUP BY n.id, n.day ORDER BY 1, 2",
    "SELECT id, customer, row_number() OVER (PARTITION BY id ORDER BY customer, day) AS r
     FROM orders ORDER BY id, customer, r",
    "SELECT count(*) FROM orders o JOIN items i ON o.id = i.order_id AND o.customer < i.price",
    "SELECT id % 10, count(*) FROM (SELECT id FROM orders GROUP BY id HAVING count(*) > 1)
     WHERE id < 20 GROUP BY id ORDER BY id",
];

/// What needs others.
const APART: &[&str] = &[
    "SELECT customer, count(*) FROM orders GROUP BY customer ORDER BY customer",
    "SELECT count(*) FROM orders o JOIN anywhere a ON o.id = a.id",
    "SELECT count(*) FROM orders JOIN items ON customer = order_id",
    "SELECT count(*) FROM notes n JOIN remarks r ON n.id = r.id",
    "SELECT count(*) FROM notes n JOIN orders o ON n.id = o.id",
    "SELECT count(*) FROM orders JOIN items ON id + 1 = order_id",
    "SELECT customer, sum(price) FROM orders JOIN items ON id = order_id
     GROUP BY customer ORDER BY customer",
    "SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM items WHERE order_id > 5)",
    "SELECT count(*) FROM orders x FULL JOIN items y ON x.id = y.order_id
       FULL JOIN orders z ON z.id = x.id",
    "SELECT id, grouping(id), count(*) FROM orders GROUP BY GROUPING SETS ((id), ()) ORDER BY 1, 2",
    "SELECT sum(n) FROM (SELECT id, count(*) AS n FROM orders GROUP BY id UNION ALL SELECT 1, 2)",
];

async fn filled(workers: usize) -> Session {
    let database = Database::builder().workers(workers).worker_threads(2);
    let session = database.build().unwrap().session();
    for sql in TABLES {
        rows(&session, sql).await;
    }
    session
}

fn exchanges(plan: &str) -> usize {
    plan.matches("NetworkShuffleExec").count() + plan.matches("NetworkBroadcastExec").count()
}

/// Large tables are joined in partitions, small ones by collecting one side.
async fn prefer_large(session: &Session, yes: bool) {
    let (bytes, rows_) = if yes { (0, 0) } else { (1 << 20, 1 << 17) };
    for sql in [
        format!("SET datafusion.optimizer.hash_join_single_partition_threshold = {bytes}"),
        format!("SET datafusion.optimizer.hash_join_single_partition_threshold_rows = {rows_}"),
    ] {
        rows(session, &sql).await;
    }
}

#[tokio::test]
async fn rows_that_are_on_one_worker_are_joined_and_grouped_there() {
    let (one, three) = (filled(1).await, filled(3).await);
    for large in [true, false] {
        prefer_large(&three, large).await;
        for level in ["off", "calls", "records"] {
            rows(&three, &format!("SET profile.level = '{level}'")).await;
            for sql in TOGETHER {
                let plan = table(&three, &format!("EXPLAIN {sql}")).await;
                assert_eq!(exchanges(&plan), 0, "{large}: {sql}\n{plan}");
                assert!(plan.contains("on workers 0 to 2"), "{sql}\n{plan}");
                let (expected, given) = (table(&one, sql).await, table(&three, sql).await);
                assert_eq!(given, expected, "{large}, {level}: {sql}");
                if level != "off" {
                    assert_eq!(workers_of_the_last_query(&three).await, [0, 1, 2], "{sql}");
                }
            }
        }
    }
}

#[tokio::test]
async fn rows_that_are_not_are_sent_to_each_other() {
    let (one, three) = (filled(1).await, filled(3).await);
    for large in [true, false] {
        prefer_large(&three, large).await;
        for sql in APART {
            let plan = table(&three, &format!("EXPLAIN {sql}")).await;
            // What one worker does alone needs no exchange but to be brought there.
            let alone = sql.contains("NOT IN") || sql.contains("UNION ALL");
            assert!(alone || exchanges(&plan) > 0, "{large}: {sql}\n{plan}");
            let (expected, given) = (table(&one, sql).await, table(&three, sql).await);
            assert_eq!(given, expected, "{large}: {sql}");
        }
    }
}

#[tokio::test]
async fn lineage_is_the_same_with_and_without_exchanges() {
    let mut found = Vec::new();
    for workers in [1, 3] {
        let session = filled(workers).await;
        rows(&session, "SET profile.level = 'records'").await;
        rows(
            &session,
            "SELECT id, sum(price) FROM orders JOIN items ON id = order_id GROUP BY id",
        )
        .await;
        let edges = "SELECT i.item, i.order_id, count(*) FROM
               (SELECT input_id FROM sys.lineage
                WHERE query_id = last_query_id() AND table_name = 'main.items') l
             JOIN (SELECT _row_id, * FROM items) i ON i._row_id = l.input_id
             GROUP BY 1, 2 ORDER BY 1, 2";
        found.push(table(&session, edges).await);
    }
    assert!(found[0].lines().count() > 100, "{}", found[0]);
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn an_update_of_the_columns_that_divide_a_table_moves_its_rows() {
    let (one, three) = (filled(1).await, filled(3).await);
    let join = "SELECT id, count(*), sum(price) FROM orders JOIN items ON id = order_id
                GROUP BY id ORDER BY id";
    for sql in [
        "UPDATE items SET order_id = order_id + 3 WHERE price > 20",
        "UPDATE orders SET id = 77 WHERE id % 10 = 3",
        "UPDATE orders SET customer = customer + 1, id = NULL WHERE id = 12",
        "DELETE FROM items WHERE price < 30",
        "UPDATE items SET item = 'x' WHERE price < 40",
        "INSERT INTO items VALUES ('new', 77, 1)",
    ] {
        rows(&one, sql).await;
        rows(&three, sql).await;
        let plan = table(&three, &format!("EXPLAIN {join}")).await;
        assert_eq!(exchanges(&plan), 0, "{sql}\n{plan}");
        assert_eq!(table(&three, join).await, table(&one, join).await, "{sql}");
        let ids = "SELECT _row_id, * FROM items ORDER BY 1";
        assert_eq!(table(&three, ids).await, table(&one, ids).await, "{sql}");
    }
}
