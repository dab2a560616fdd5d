package main

import (
	"bytes"
	"testing"
	"time"
)

// TestMeter checks the output for a task with two attempts, on a terminal and elsewhere.
func TestMeter(t *testing.T) {
	began := time.Unix(1000, 0)
	observations := []struct {
		after       time.Duration
		done, total int64
	}{
		{0, 0, 0}, {time.Second, 10 << 20, 100 << 20}, {11 * time.Second, 60 << 20, 100 << 20}, {15 * time.Second, 100 << 20, 100 << 20},
		{16 * time.Second, 5 << 20, 100 << 20}, // the second attempt
	}
	for _, test := range []struct {
		terminal bool
		want     string
	}{
		{true, "\r\x1b[Kbackup b: no progress yet" +
			"\r\x1b[Kbackup b: 10 %, 10.0 MiB of 100.0 MiB" +
			"\r\x1b[Kbackup b: 60 %, 60.0 MiB of 100.0 MiB, 5.0 MiB/s" +
			"\r\x1b[Kbackup b: 100 %, 100.0 MiB of 100.0 MiB, 6.4 MiB/s" +
			"\r\x1b[Kbackup b: 5 %, 5.0 MiB of 100.0 MiB\r\x1b[K"},
		{false, "backup b: 60 %, 60.0 MiB of 100.0 MiB, 5.0 MiB/s\n"},
	} {
		var out bytes.Buffer
		m := newMeter(&out, "backup b")
		m.terminal, m.printed = test.terminal, began
		for _, o := range observations {
			m.show(began.Add(o.after), o.done, o.total)
		}
		m.end()
		if out.String() != test.want {
			t.Errorf("on a terminal (%v): %q, want %q", test.terminal, out.String(), test.want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 1 << 20: "1.0 MiB", 3 << 29: "1.5 GiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		if got := formatBytes(bytes); got != want {
			t.Errorf("formatBytes(%d) = %s, want %s", bytes, got, want)
		}
	}
}
