-- Expensive bids in euros, by the time of day, and how often the letter e is in the note.
-- expect: bounded
-- because each bid is answered by itself
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, bidder, price * 0.92 AS euros,
  CASE
    WHEN hour(made_at) BETWEEN 9 AND 17 THEN 'day'
    WHEN hour(made_at) < 6 OR hour(made_at) >= 21 THEN 'night'
    ELSE 'between'
  END AS part_of_day,
  made_at, length(note) - length(replace(note, 'e', '')) AS letters
FROM bids
WHERE price * 0.92 > 1000 AND price * 0.92 < 50000;
