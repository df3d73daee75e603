package inbox_test

const asConsumer = "TOWPATH_TEST_AS_CONSUMER"

func consumeUntilKilled() {}
