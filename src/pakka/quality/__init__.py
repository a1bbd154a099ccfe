"""Rules over rows: the judge as Spark SQL, and what the dead letters look like."""
