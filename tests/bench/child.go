package bench

import "io"

func serveMember(in io.Reader, out io.Writer) error { return nil }
func removeDatabases()                               {}
