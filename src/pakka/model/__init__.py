"""Pure values: what the words of pakka are made of. No I/O, no driver library, no clock."""
