SELECT count(*) FROM hits;

SELECT count(*) FROM hits WHERE adv_engine_id <> 0;

SELECT sum(adv_engine_id), count(*), avg(resolution_width) FROM hits;

SELECT avg(user_id) FROM hits;

SELECT count(DISTINCT user_id) FROM hits;

SELECT count(DISTINCT search_phrase) FROM hits;

SELECT min(event_date), max(event_date) FROM hits;

SELECT adv_engine_id, count(*) AS c FROM hits WHERE adv_engine_id <> 0
GROUP BY adv_engine_id ORDER BY c DESC, adv_engine_id;

SELECT region_id, count(DISTINCT user_id) AS u FROM hits
GROUP BY region_id ORDER BY u DESC, region_id LIMIT 10;

SELECT region_id, sum(adv_engine_id), count(*) AS c, avg(resolution_width), count(DISTINCT user_id)
FROM hits GROUP BY region_id ORDER BY c DESC, region_id LIMIT 10;

SELECT phone_model, count(DISTINCT user_id) AS u FROM hits WHERE phone_model <> ''
GROUP BY phone_model ORDER BY u DESC, phone_model LIMIT 10;

SELECT phone, phone_model, count(DISTINCT user_id) AS u FROM hits WHERE phone_model <> ''
GROUP BY phone, phone_model ORDER BY u DESC, phone, phone_model LIMIT 10;

SELECT search_phrase, count(*) AS c FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY c DESC, search_phrase LIMIT 10;

SELECT search_phrase, count(DISTINCT user_id) AS u FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY u DESC, search_phrase LIMIT 10;

SELECT search_engine_id, search_phrase, count(*) AS c FROM hits WHERE search_phrase <> ''
GROUP BY search_engine_id, search_phrase ORDER BY c DESC, search_engine_id, search_phrase LIMIT 10;

SELECT user_id, count(*) AS c FROM hits GROUP BY user_id ORDER BY c DESC, user_id LIMIT 10;

SELECT user_id, search_phrase, count(*) AS c FROM hits
GROUP BY user_id, search_phrase ORDER BY c DESC, user_id, search_phrase LIMIT 10;

SELECT count(*), max(c) FROM
(SELECT user_id, search_phrase, count(*) AS c FROM hits GROUP BY user_id, search_phrase) AS pairs;

SELECT user_id, extract(minute FROM event_time) AS m, search_phrase, count(*) AS c FROM hits
GROUP BY user_id, m, search_phrase ORDER BY c DESC, user_id, m, search_phrase LIMIT 10;

SELECT user_id, event_time FROM hits WHERE user_id = 28113823476581569 ORDER BY event_time;

SELECT count(*) FROM hits WHERE url LIKE '%compass%';

SELECT search_phrase, min(url), count(*) AS c FROM hits
WHERE url LIKE '%compass%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY c DESC, search_phrase LIMIT 10;

SELECT search_phrase, min(url), min(title), count(*) AS c, count(DISTINCT user_id) FROM hits
WHERE title LIKE '%Compass%' AND url NOT LIKE '%.compass.%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY c DESC, search_phrase LIMIT 10;

SELECT * FROM hits WHERE url LIKE '%compass%' ORDER BY event_time, watch_id LIMIT 10;

SELECT search_phrase, event_time, watch_id FROM hits WHERE search_phrase <> ''
ORDER BY event_time, watch_id LIMIT 10;

SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10;

SELECT search_phrase, event_time FROM hits WHERE search_phrase <> ''
ORDER BY event_time, search_phrase LIMIT 10;

SELECT counter_id, avg(length(url)) AS l, count(*) AS c FROM hits WHERE url <> ''
GROUP BY counter_id HAVING count(*) > 500 ORDER BY l DESC, counter_id LIMIT 25;

SELECT regexp_replace(referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k,
avg(length(referer)) AS l, count(*) AS c, min(referer) FROM hits WHERE referer <> ''
GROUP BY k HAVING count(*) > 500 ORDER BY l DESC, k LIMIT 25;

SELECT sum(resolution_width), sum(resolution_width + 1), sum(resolution_width + 2),
sum(resolution_width + 3), sum(resolution_width + 4), sum(resolution_width + 5),
sum(resolution_width + 6), sum(resolution_width + 7), sum(resolution_width + 8),
sum(resolution_width + 9), sum(resolution_width + 10), sum(resolution_width + 11),
sum(resolution_width + 12), sum(resolution_width + 13), sum(resolution_width + 14),
sum(resolution_width + 15), sum(resolution_width + 16), sum(resolution_width + 17),
sum(resolution_width + 18), sum(resolution_width + 19), sum(resolution_width + 20),
sum(resolution_width + 21), sum(resolution_width + 22), sum(resolution_width + 23),
sum(resolution_width + 24), sum(resolution_width + 25), sum(resolution_width + 26),
sum(resolution_width + 27), sum(resolution_width + 28), sum(resolution_width + 29),
sum(resolution_width + 30), sum(resolution_width + 31), sum(resolution_width + 32),
sum(resolution_width + 33), sum(resolution_width + 34), sum(resolution_width + 35),
sum(resolution_width + 36), sum(resolution_width + 37), sum(resolution_width + 38),
sum(resolution_width + 39), sum(resolution_width + 40), sum(resolution_width + 41),
sum(resolution_width + 42), sum(resolution_width + 43), sum(resolution_width + 44),
sum(resolution_width + 45), sum(resolution_width + 46), sum(resolution_width + 47)
FROM hits;

SELECT search_engine_id, client_ip, count(*) AS c, sum(is_refresh), avg(resolution_width) FROM hits
WHERE search_phrase <> ''
GROUP BY search_engine_id, client_ip ORDER BY c DESC, search_engine_id, client_ip LIMIT 10;

SELECT watch_id, client_ip, count(*) AS c, sum(is_refresh), avg(resolution_width) FROM hits
WHERE search_phrase <> ''
GROUP BY watch_id, client_ip ORDER BY c DESC, watch_id, client_ip LIMIT 10;

SELECT watch_id, client_ip, count(*) AS c, sum(is_refresh), avg(resolution_width) FROM hits
GROUP BY watch_id, client_ip ORDER BY c DESC, watch_id, client_ip LIMIT 10;

SELECT url, count(*) AS c FROM hits GROUP BY url ORDER BY c DESC, url LIMIT 10;

SELECT 1 AS one, url, count(*) AS c FROM hits GROUP BY one, url ORDER BY c DESC, url LIMIT 10;

SELECT client_ip, client_ip - 1 AS a, client_ip - 2 AS b, client_ip - 3 AS d, count(*) AS c FROM hits
GROUP BY client_ip, a, b, d ORDER BY c DESC, client_ip LIMIT 10;

SELECT url, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND does_not_count = 0 AND is_refresh = 0 AND url <> ''
GROUP BY url ORDER BY views DESC, url LIMIT 10;

SELECT title, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND does_not_count = 0 AND is_refresh = 0 AND title <> ''
GROUP BY title ORDER BY views DESC, title LIMIT 10;

SELECT url, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND is_refresh = 0 AND is_link <> 0 AND is_download = 0
GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 100;

SELECT traffic_source_id, search_engine_id, adv_engine_id,
CASE WHEN search_engine_id = 0 AND adv_engine_id = 0 THEN referer ELSE '' END AS source,
url AS target, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND is_refresh = 0
GROUP BY traffic_source_id, search_engine_id, adv_engine_id, source, target
ORDER BY views DESC, traffic_source_id, search_engine_id, adv_engine_id, source, target
LIMIT 10 OFFSET 1000;

SELECT url_hash, event_date, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND is_refresh = 0 AND traffic_source_id IN (-1, 6) AND referer_hash % 16 = 3
GROUP BY url_hash, event_date ORDER BY views DESC, url_hash, event_date LIMIT 10 OFFSET 100;

SELECT window_width, window_height, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-01' AND event_date <= DATE '2026-07-31'
AND is_refresh = 0 AND does_not_count = 0 AND url_hash % 16 = 5
GROUP BY window_width, window_height ORDER BY views DESC, window_width, window_height
LIMIT 10 OFFSET 1000;

SELECT date_trunc('minute', event_time) AS m, count(*) AS views FROM hits
WHERE counter_id = 3 AND event_date >= DATE '2026-07-14' AND event_date <= DATE '2026-07-15'
AND is_refresh = 0 AND does_not_count = 0
GROUP BY m ORDER BY m LIMIT 10 OFFSET 1000;
