"""What a snapshot keeps of each kind of object: small frozen records, one module per API group."""
