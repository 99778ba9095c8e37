"""Who a request comes from: keys, browser sessions, watch links, and the checks before them."""
