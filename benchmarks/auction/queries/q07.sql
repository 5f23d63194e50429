-- The highest bids of every ten seconds.
-- expect: bounded
-- because only the bids of open windows are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT b.auction, b.bidder, b.price, b.made_at
FROM bids b JOIN (
  SELECT MAX(price) AS highest, window.start AS since, window.end AS till
  FROM bids
  GROUP BY window(made_at, '10 seconds')
) top ON b.price = top.highest AND b.made_at >= top.since AND b.made_at < top.till;
