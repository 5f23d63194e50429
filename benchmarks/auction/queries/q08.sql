-- People who open an auction in the same ten seconds in which they join.
-- expect: bounded
-- because only the people and sellers of open windows are kept
CREATE STREAMING TABLE people (
  id BIGINT, name STRING, email STRING, city STRING, state STRING, joined_at TIMESTAMP
) USING parquet OPTIONS (path 'data/people', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');

SELECT newcomer.id, newcomer.name, newcomer.since
FROM (
  SELECT id, name, window.start AS since, window.end AS till
  FROM people
  GROUP BY id, name, window(joined_at, '10 seconds')
) newcomer JOIN (
  SELECT seller, window.start AS since, window.end AS till
  FROM auctions
  GROUP BY seller, window(opened_at, '10 seconds')
) selling
  ON selling.seller = newcomer.id AND selling.since = newcomer.since AND selling.till = newcomer.till;
