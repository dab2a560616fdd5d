package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/cmd/node/nodebackup"
)

// meter shows the progress of a task. On a terminal it rewrites one line; elsewhere it prints a line every lineInterval.
type meter struct {
	to       io.Writer
	terminal bool
	// task names the task at the beginning of a line. name is its beginning if the task has several steps.
	task, name string
	// attemptSeen is the time of the first call of show for the current attempt of the task.
	attemptSeen time.Time
	// initial and latest are the bytes done at the first and the last call of show for the current attempt.
	initial, latest int64
	// printed is the time of the last line that was not printed to a terminal.
	printed time.Time
}

// lineInterval is the shortest time between two lines that are not printed to a terminal.
const lineInterval = 10 * time.Second

// newMeter returns a meter that writes to to, and rewrites its line if to is a terminal.

func newMeter(to io.Writer, task string) *meter {
	file, ok := to.(*os.File)
	return &meter{to: to, terminal: ok && isTerminal(file), task: task, printed: time.Now()}
}

// isTerminal reports whether file is a terminal.
func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// show shows that the task has processed done of total bytes. A total of 0 means that the node has not reported progress.
func (m *meter) show(now time.Time, done, total int64) {
	if m.latest == 0 || done < m.latest { // a new attempt starts at 0 again
		m.attemptSeen, m.initial = now, done
	}
	m.latest = done
	text := m.text(now, done, total)
	switch {
	case m.terminal:
		fmt.Fprintf(m.to, "\r\x1b[K%s", text)
	case now.Sub(m.printed) >= lineInterval:
		m.printed = now
		fmt.Fprintln(m.to, text)
	}
}

// showSteps shows the progress of a task with several steps: the step, the number of drives, and the bytes of all steps. On a
// terminal it rewrites the line at most ten times a second.
func (m *meter) showSteps(now time.Time, p nodebackup.Progress) {
	if m.terminal && now.Sub(m.printed) < 100*time.Millisecond {
		return
	}
	if m.name == "" {
		m.name = m.task
	}
	m.task = fmt.Sprintf("%s: %s, %d of %d drives", m.name, p.Step, p.DrivesDone, p.Drives)
	if m.terminal {
		m.printed = now
	}
	m.show(now, p.DoneBytes, p.TotalBytes)
}

// text returns the line, with the rate of the current attempt once it was observed for a second.
func (m *meter) text(now time.Time, done, total int64) string {
	if total == 0 {
		return m.task + ": no progress yet"
	}
	text := fmt.Sprintf("%s: %d %%, %s of %s", m.task, done*100/total, formatBytes(done), formatBytes(total))
	if took := now.Sub(m.attemptSeen).Seconds(); took >= 1 {
		text += fmt.Sprintf(", %s/s", formatBytes(int64(float64(done-m.initial)/took)))
	}
	return text
}

// end erases the line if it is on a terminal.
func (m *meter) end() {
	if m.terminal {
		fmt.Fprint(m.to, "\r\x1b[K")
	}
}

// formatBytes returns a number of bytes as text in B, KiB, MiB, GiB or TiB.
func formatBytes(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for ; value >= 1000 && unit < 3; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit])
}
