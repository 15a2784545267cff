"""What a method sees of its clients: requests, validated replies, quorum, ledger and wire
format."""
