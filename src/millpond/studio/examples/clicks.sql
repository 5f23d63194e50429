-- Clicks and impressions
-- Which ads were clicked, how often, and by how many people?

CREATE STREAMING TABLE impressions (
  id BIGINT, ad INT, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '10 seconds', 'rate' = '2000 per second'
);

CREATE STREAMING TABLE clicks (
  impression BIGINT, ad INT, user_id BIGINT, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '10 seconds', 'rate' = '100 per second'
);

-- Impressions that were clicked. A click may come years later,
-- so every impression has to be kept.
SELECT i.id, i.ad, c.user_id
FROM impressions i JOIN clicks c ON c.impression = i.id;

-- With an hour for each click, the last hour has to be kept.
SELECT i.id, i.ad, c.user_id
FROM impressions i JOIN clicks c
  ON c.impression = i.id
  AND c.at BETWEEN i.at AND i.at + INTERVAL 1 HOUR;

-- Clicks on each ad in ten minutes: a group closes with its window.
SELECT window.start AS since, ad, COUNT(*) AS clicks
FROM clicks GROUP BY window(at, '10 minutes'), ad;

-- People who have ever clicked: to count nobody twice, all of
-- them have to be remembered.
SELECT COUNT(DISTINCT user_id) AS people FROM clicks;
