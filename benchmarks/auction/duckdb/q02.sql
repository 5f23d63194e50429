SELECT auction, price FROM bids WHERE auction % 97 = 0;
