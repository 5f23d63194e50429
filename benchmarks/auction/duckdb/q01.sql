SELECT auction, bidder, price * 0.92 AS euros, made_at FROM bids;
