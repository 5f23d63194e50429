SELECT auction, bidder, price, made_at
FROM bids
QUALIFY price = MAX(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, made_at));
