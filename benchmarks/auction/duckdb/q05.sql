-- Every bid is in five windows; a window is in the answer with its most frequent auctions.
WITH counted AS (
  SELECT auction, COUNT(*) AS bids,
    time_bucket(INTERVAL 2 SECONDS, made_at) - earlier * INTERVAL 2 SECONDS AS since
  FROM bids, range(5) AS slides (earlier)
  GROUP BY ALL
)
SELECT auction, bids, since FROM counted QUALIFY bids = MAX(bids) OVER (PARTITION BY since);
