-- How many bids everybody makes without a pause of ten seconds.
-- expect: bounded
-- because only sessions that are open are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT bidder, COUNT(*) AS bids, session_window.start AS since, session_window.end AS till
FROM bids
GROUP BY bidder, session_window(made_at, '10 seconds');
