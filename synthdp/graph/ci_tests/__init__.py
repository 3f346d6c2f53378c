"""Independence tests, one per file, all answering with an `Answer`."""
