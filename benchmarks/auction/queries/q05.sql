-- The auctions with the most bids of the last ten seconds, every two seconds.
-- expect: bounded
-- because only the counts of open windows are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

WITH counted AS (
  SELECT auction, COUNT(*) AS bids, window.start AS since, window.end AS till
  FROM bids
  GROUP BY auction, window(made_at, '10 seconds', '2 seconds')
),
most AS (SELECT MAX(bids) AS bids, since, till FROM counted GROUP BY since, till)
SELECT counted.auction, counted.bids, counted.since
FROM counted JOIN most ON counted.since = most.since AND counted.till = most.till
WHERE counted.bids >= most.bids;
