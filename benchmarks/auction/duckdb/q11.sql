-- A session begins with a bid that follows no other of the same bidder within ten seconds.
WITH begun AS (
  SELECT bidder, made_at,
    coalesce(made_at - lag(made_at) OVER by_time >= INTERVAL 10 SECONDS, true)::INT AS begins
  FROM bids
  WINDOW by_time AS (PARTITION BY bidder ORDER BY made_at)
),
numbered AS (SELECT *, SUM(begins) OVER (PARTITION BY bidder ORDER BY made_at) AS session FROM begun)
SELECT bidder, COUNT(*) AS bids, MIN(made_at) AS since, MAX(made_at) + INTERVAL 10 SECONDS AS till
FROM numbered
GROUP BY bidder, session;
