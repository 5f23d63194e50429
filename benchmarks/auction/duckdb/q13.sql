SELECT b.auction, b.bidder, b.price, b.made_at, s.label
FROM bids b JOIN shelves s ON b.auction % 1000 = s.number;
