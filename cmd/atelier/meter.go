package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// meter shows how far a task is: on a terminal as one line that changes, elsewhere as a line now and then.
type meter struct {
	to       io.Writer
	terminal bool
	what     string
	// since and from are when the attempt that is under way was first seen, and how far it was; last is how far it was
	// when it was shown.
	since      time.Time
	from, last int64
	// printed is when the last line was printed that is not on a terminal.
	printed time.Time
}

// plainEvery is the pause between lines that are not on a terminal.
const plainEvery = 10 * time.Second

func newMeter(to io.Writer, what string) *meter {
	file, ok := to.(*os.File)
	return &meter{to: to, terminal: ok && isTerminal(file), what: what, printed: time.Now()}
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// show shows that done bytes of total are worked off; 0 of 0: the node does not say.
func (m *meter) show(now time.Time, done, total int64) {
	if m.last == 0 || done < m.last { // a task that is tried again begins anew
		m.since, m.from = now, done
	}
	m.last = done
	text := m.text(now, done, total)
	switch {
	case m.terminal:
		fmt.Fprintf(m.to, "\r\x1b[K%s", text)
	case now.Sub(m.printed) >= plainEvery:
		m.printed = now
		fmt.Fprintln(m.to, text)
	}
}

func (m *meter) text(now time.Time, done, total int64) string {
	if total == 0 {
		return m.what + ": no progress yet"
	}
	text := fmt.Sprintf("%s: %d %%, %s of %s", m.what, done*100/total, inUnits(done), inUnits(total))
	if took := now.Sub(m.since).Seconds(); took >= 1 {
		text += fmt.Sprintf(", %s/s", inUnits(int64(float64(done-m.from)/took)))
	}
	return text
}

// end removes the line from a terminal.
func (m *meter) end() {
	if m.terminal {
		fmt.Fprint(m.to, "\r\x1b[K")
	}
}

// inUnits returns a number of bytes in the unit that people read it in.
func inUnits(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for ; value >= 1000 && unit < 3; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit])
}
