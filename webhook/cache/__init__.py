"""Keep a cluster snapshot and the policies in force up to date from watches."""
