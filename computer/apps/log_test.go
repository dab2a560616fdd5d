package apps

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

const logApp = "app_01jd0000000000000000000000"

func openLog(t *testing.T, dir string) (*logs, *appLog) {
	t.Helper()
	l := newLogs(dir, time.Now, slog.New(slog.DiscardHandler))
	a, err := l.acquire(logApp)
	if err != nil {
		t.Fatal(err)
	}
	return l, a
}

func texts(of Lines) (all []string) {
	for _, line := range of.Lines {
		all = append(all, fmt.Sprintf("%d %s %s", line.Seq, line.Stream, line.Text))
	}
	return all
}

func expectLines(t *testing.T, got Lines, want ...string) {
	t.Helper()
	if strings.Join(texts(got), "\n") != strings.Join(want, "\n") {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(texts(got), "\n"), strings.Join(want, "\n"))
	}
}

func TestLogGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	l, a := openLog(t, dir)
	a.add("stdout", "one", newOutput())
	a.platform("two\nthree")
	l.release(a)
	// The end of the node cuts a line off.
	file, err := os.OpenFile(filepath.Join(dir, logApp, "log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"seq":4,"at":1,"str`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	for range 2 {
		l, a = openLog(t, dir)
		a.add("stderr", "next", newOutput())
		l.release(a)
	}
	_, a = openLog(t, dir)
	expectLines(t, a.read(0, 10), "1 stdout one", "2 platform two", "3 platform three", "4 stderr next", "5 stderr next")
	expectLines(t, a.read(2, 2), "3 platform three", "4 stderr next")
	expectLines(t, a.read(9, 2))
}

func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		_, a := openLog(t, dir)
		line := strings.Repeat("x", 1000)
		limit := newOutput()
		for range 20_000 { // slowly, so that nothing is dropped
			time.Sleep(time.Millisecond)
			a.add("stdout", line, limit)
		}
		first := a.read(1, 1)
		if !first.Missed || a.bytes > maxMemory || len(a.lines) > maxLines || a.last != 20_000 {
			t.Errorf("%d lines with %d bytes are in memory, missed %v, the last is %d", len(a.lines), a.bytes, first.Missed, a.last)
		}
		total := int64(0)
		for _, name := range []string{"log", "log.1"} {
			found, err := os.Stat(filepath.Join(dir, logApp, name))
			if err != nil {
				t.Fatal(err)
			}
			if found.Mode().Perm() != 0o600 {
				t.Errorf("the mode of %s is %v", name, found.Mode())
			}
			total += found.Size()
		}
		if total > 2*maxFile+2*MaxLine {
			t.Errorf("the files have %d bytes", total)
		}
	})
}

func TestFloodIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := openLog(t, t.TempDir())
		w := a.writer("stdout", "", newOutput())
		flood := strings.Repeat(strings.Repeat("y", 99)+"\n", 10_000)
		begin := time.Now()
		for range 20 { // 20 MB at once
			if n, err := w.Write([]byte(flood)); n != len(flood) || err != nil {
				t.Fatal(n, err)
			}
		}
		if a.last > logBurst/100+1 {
			t.Errorf("%d lines were logged", a.last)
		}
		if took := time.Since(begin); took < 14_000_000*time.Second/dropRate {
			t.Errorf("more than 14 MB were dropped in %s", took)
		}
		io.WriteString(w, "y")
		time.Sleep(time.Minute)
		io.WriteString(w, "yyy\nlater\n") // the first line has no beginning
		last := a.lines[len(a.lines)-2:]
		if last[0].Stream != StreamPlatform || !strings.Contains(last[0].Text, "dropped") || last[1].Text != "later" {
			t.Errorf("after the flood the log ends with %v", last)
		}
	})
}

func TestLinesOfOutput(t *testing.T) {
	const secret = "atlapp_secretsecretsecret"
	for name, of := range map[string]struct {
		output string
		want   []string
	}{
		"lines":                 {"a\nb\r\n\nc", []string{"a", "b", "", "c"}},
		"invalid UTF-8":         {"a\xffb\n", []string{"a\uFFFDb"}},
		"the key":               {"key=" + secret + "!\n", []string{"key=[key]!"}},
		"the secret of the key": {"s=secretsecretsecret!\n", []string{"s=[key]!"}},
		"long":                  {strings.Repeat("z", MaxLine+5) + "\n", []string{strings.Repeat("z", MaxLine), "zzzzz"}},
		"exactly the most":      {strings.Repeat("z", MaxLine) + "\nb\n", []string{strings.Repeat("z", MaxLine), "b"}},
		"the key at the cut":    {strings.Repeat("z", MaxLine-3) + secret + "\n", []string{strings.Repeat("z", MaxLine-3), "[key]"}},
	} {
		for reader, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		} {
			t.Run(name+"/"+reader, func(t *testing.T) {
				_, a := openLog(t, t.TempDir())
				a.writer("stdout", secret, newOutput()).consume(io.NopCloser(wrap(strings.NewReader(of.output))))
				var got []string
				for _, line := range a.lines {
					got = append(got, line.Text)
				}
				if strings.Join(got, "|") != strings.Join(of.want, "|") {
					t.Errorf("the lines are %.200q, want %.200q", got, of.want)
				}
			})
		}
	}
}

func TestNewsOfALog(t *testing.T) {
	_, a := openLog(t, t.TempDir())
	a.add("stdout", "one", newOutput())
	found := a.read(0, 10)
	select {
	case <-found.News:
		t.Error("there are news before a further line")
	default:
	}
	a.add("stdout", "two", newOutput())
	<-found.News
	expectLines(t, a.read(1, 10), "2 stdout two")
	if early := a.read(0, 1); len(early.Lines) != 1 {
		t.Errorf("%d lines", len(early.Lines))
	} else {
		<-early.News // the rest is there already
	}
}

func TestBeginningOfALine(t *testing.T) {
	const key = "atlapp_id_secretsecretsecret"
	synctest.Test(t, func(t *testing.T) {
		_, a := openLog(t, t.TempDir())
		w := a.writer("stdout", key, newOutput())
		io.WriteString(w, "name: "+key[:15])
		expectLines(t, a.read(0, 10))
		time.Sleep(2 * partialPause)
		synctest.Wait()
		expectLines(t, a.read(0, 10), "1 stdout name: ")
		io.WriteString(w, key[15:]+"\n")
		expectLines(t, a.read(1, 10), "2 stdout [key]")
	})
}

// The reason of a failure has the last lines of the process that has failed, even if another process writes meanwhile.
func TestTailIsOfOneProcess(t *testing.T) {
	_, a := openLog(t, t.TempDir())
	failing, flooding := newOutput(), newOutput()
	for i := range tailLines + 1 {
		a.add("stderr", fmt.Sprint("line ", i), failing)
		a.add("stdout", strings.Repeat("y", MaxLine), flooding)
	}
	if got, want := a.tail(failing), "\nline 1\nline 2"; !strings.HasPrefix(got, want) || strings.Contains(got, "y") {
		t.Errorf("the last lines are %q, want %q and more", got, want)
	}
	if got := a.tail(flooding); len(got) != tailBytes {
		t.Errorf("the last lines of a flood have %d bytes, want %d", len(got), tailBytes)
	}
}

// TestOutputEndsWithAPartialLine ends outputs in the moment in which the beginning of their last line is logged for lack of the rest. The
// line is logged once.
func TestOutputEndsWithAPartialLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a := openLog(t, t.TempDir())
		defer l.release(a)
		const rounds = 2000
		for range rounds {
			from, to := io.Pipe()
			go func() {
				_, _ = io.WriteString(to, "text")
				time.Sleep(partialPause)
				_ = to.Close()
			}()
			a.writer("stdout", "", newOutput()).consume(from)
			synctest.Wait()
		}
		if last := a.read(0, 1).Last; last != rounds {
			t.Errorf("%d outputs have %d lines", rounds, last)
		}
	})
}

// TestOutputAfterTheEndOfTheLoop has a process. Its output ends after its loop has ended, when the next loop uses the log.
func TestOutputAfterTheEndOfTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ended := openLog(t, t.TempDir())
		from, to := io.Pipe()
		ended.writer("stdout", "", newOutput()).start(from)
		l.release(ended)
		next, err := l.acquire(logApp)
		if err != nil {
			t.Fatal(err)
		}
		next.platform("started")
		if _, err := io.WriteString(to, "late\n"); err != nil {
			t.Fatal(err)
		}
		_ = to.Close()
		synctest.Wait()
		next.platform("listens")
		expectLines(t, next.read(0, 10), "1 platform started", "2 stdout late", "3 platform listens")
		l.release(next)
		if len(l.open) != 0 {
			t.Error("the log is open although nothing uses it")
		}
	})
}
