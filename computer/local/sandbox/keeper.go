package sandbox

func runKeeper() error { return nil }
