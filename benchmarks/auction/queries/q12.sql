-- How many bids everybody makes in every ten seconds of the stream's own time.
-- expect: bounded
-- because only the counts of open windows are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT bidder, COUNT(*) AS bids, window.start AS since, window.end AS till
FROM bids
GROUP BY bidder, window(made_at, '10 seconds');
