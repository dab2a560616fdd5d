package docker_test

import (
	"fmt"
	"testing"

	"github.com/atelier-run/atelier/computer/docker/dockertest"
)

// BenchmarkStart measures the start of a process in a computer that is not running, and its end.
func BenchmarkStart(b *testing.B) {
	f := start(b, dockertest.Start(b, dockertest.TestAgent))
	for b.Loop() {
		if r := f.run(b, shell("p1", "echo hello")); r.out != "hello\n" {
			b.Fatalf("got %+v", r)
		}
		b.StopTimer()
		if err := f.Stop(b.Context(), workspace); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkProcess measures a process from its start to its end in a computer that is running.
func BenchmarkProcess(b *testing.B) {
	f := start(b, dockertest.Start(b, dockertest.TestAgent))
	f.run(b, shell("first", "true"))
	for i := 0; b.Loop(); i++ {
		if r := f.run(b, shell(fmt.Sprint("p", i), "echo hello")); r.out != "hello\n" {
			b.Fatalf("got %+v", r)
		}
	}
}

// BenchmarkRoundTrip measures a line to a process and back.
func BenchmarkRoundTrip(b *testing.B) {
	f := start(b, dockertest.Start(b, dockertest.TestAgent))
	p, err := f.Start(b.Context(), workspace, shell("p1", "exec cat"))
	if err != nil {
		b.Fatal(err)
	}
	line := []byte("hello\n")
	for b.Loop() {
		if _, err := p.Streams().Stdin.Write(line); err != nil {
			b.Fatal(err)
		}
		expectLine(b, p, "hello")
	}
	finish(b, p)
}
