SELECT auction, bidder, price, made_at FROM bids;
