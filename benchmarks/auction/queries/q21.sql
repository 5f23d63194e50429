-- Every bid that comes through a known channel, with the number of the channel.
-- expect: bounded
-- because each bid is answered by itself
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, bidder, price, channel,
  CASE
    WHEN lower(channel) = 'app' THEN '1'
    WHEN lower(channel) = 'hall' THEN '2'
    WHEN lower(channel) = 'phone' THEN '3'
    WHEN lower(channel) = 'web' THEN '4'
    ELSE regexp_extract(url, '[?&]source=([^&]*)', 1)
  END AS source
FROM bids
WHERE lower(channel) IN ('app', 'hall', 'phone', 'web') OR regexp_extract(url, '[?&]source=([^&]*)', 1) <> '';
