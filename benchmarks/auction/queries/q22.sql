-- Every bid, with the three folders in its address.
-- expect: bounded
-- because each bid is answered by itself
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, bidder, price, channel,
  split(url, '/')[3] AS first_folder, split(url, '/')[4] AS second_folder, split(url, '/')[5] AS third_folder
FROM bids;
