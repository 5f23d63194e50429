WITH sourced AS (SELECT *, regexp_extract(url, '[?&]source=([^&]*)', 1) AS named FROM bids)
SELECT auction, bidder, price, channel,
  coalesce(map {'app': '1', 'hall': '2', 'phone': '3', 'web': '4'}[lower(channel)], named) AS source
FROM sourced
WHERE source <> '';
