"""What we are measured against: other ways to hold visitors back, written as well as we can."""
