"""What pyarrow leaves to its users: encodings undone, copies that free their memory, sizes of rows."""
