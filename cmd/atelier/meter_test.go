package main

import (
	"bytes"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	began := time.Unix(1000, 0)
	looks := []struct {
		after       time.Duration
		done, total int64
	}{
		{0, 0, 0}, {time.Second, 10 << 20, 100 << 20}, {11 * time.Second, 60 << 20, 100 << 20}, {15 * time.Second, 100 << 20, 100 << 20},
		{16 * time.Second, 5 << 20, 100 << 20}, // a second attempt
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
		for _, look := range looks {
			m.show(began.Add(look.after), look.done, look.total)
		}
		m.end()
		if out.String() != test.want {
			t.Errorf("terminal %v: %q, want %q", test.terminal, out.String(), test.want)
		}
	}
}

func TestInUnits(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 1 << 20: "1.0 MiB", 3 << 29: "1.5 GiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		if got := inUnits(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
