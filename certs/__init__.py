"""Issue, renew and store the certificates of the webhook."""
