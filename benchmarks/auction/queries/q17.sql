-- For every auction and day: how many bids, by their size, and the lowest, highest, average and total price.
-- expect: bounded
-- because only the auctions of the days that are open are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, date_format(made_at, 'yyyy-MM-dd') AS day,
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS low_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high_bids,
  MIN(price) AS lowest, MAX(price) AS highest, AVG(price) AS average, SUM(price) AS total
FROM bids
GROUP BY auction, date_format(made_at, 'yyyy-MM-dd');
