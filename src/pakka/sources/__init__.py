"""Where rows come from. Each source is a frozen value that Spark reads as a stream."""
