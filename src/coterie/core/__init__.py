"""The records that pass between a method and its clients. Imports nothing of Coterie but `errors`
and `config`."""
