SELECT bidder, COUNT(*) AS bids, time_bucket(INTERVAL 10 SECONDS, made_at) AS since,
  since + INTERVAL 10 SECONDS AS till
FROM bids
GROUP BY bidder, since;
