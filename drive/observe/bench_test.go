package observe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// benchmarkFiles is the number of files that the benchmarks create.
const benchmarkFiles = 10_000

// BenchmarkUntar compares the time of unpacking an archive on an observed drive with the time on the same file system without
// observation. BenchmarkClone compares the times of a clone with git.
func BenchmarkUntar(b *testing.B) {
	source := makeFiles(b)
	archive := filepath.Join(b.TempDir(), "files.tar")
	run(b, "tar", "-C", source, "-cf", archive, ".")
	compare(b, func(to string) *exec.Cmd { return exec.Command("tar", "-C", to, "-xf", archive) })
}

func BenchmarkClone(b *testing.B) {
	source := makeFiles(b)
	run(b, "git", "-C", source, "init", "-q")
	run(b, "git", "-C", source, "add", ".")
	run(b, "git", "-C", source, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "files")
	compare(b, func(to string) *exec.Cmd {
		return exec.Command("git", "clone", "-q", "--no-local", source, filepath.Join(to, "clone"))
	})
}

// compare runs a command in turn on a folder without observation and on an observed drive. It reports the median ratio of their
// times, and the time from the end of the command to the moment when all rows are recorded.
func compare(b *testing.B, command func(to string) *exec.Cmd) {
	n := newNode(b, Options{})
	native := filepath.Join(filepath.Dir(n.drives.Dir()), "native")
	var ratios, processor, natives, observed, rest []float64
	for b.Loop() {
		plain := measure(b, native, command, func(int) {})
		natives = append(natives, plain.wall)
		before := len(n.activity.Rows())
		w, err := n.observer.Begin(b.Context(), workspace, session)
		if err != nil {
			b.Fatal(err)
		}
		to := filepath.Join(n.files, "tree")
		took := measure(b, to, command, func(pid int) {
			if err := w.Attribute(pid); err != nil {
				b.Fatal(err)
			}
		})
		ended := time.Now()
		if err := w.End(b.Context()); err != nil {
			b.Fatal(err)
		}
		rest = append(rest, time.Since(ended).Seconds())
		observed, ratios = append(observed, took.wall), append(ratios, took.wall/plain.wall)
		processor = append(processor, took.processor/plain.processor)
		checkRows(b, n, to, before)
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(native); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(processor), "cpu-ratio")
	b.ReportMetric(1000*median(natives), "native-ms")
	b.ReportMetric(1000*median(observed), "observed-ms")
	b.ReportMetric(1000*median(rest), "rest-ms")
	b.ReportMetric(0, "ns/op")
}

// A cost is the time and the processor time of a command in seconds.
type cost struct{ wall, processor float64 }

// measure runs a command that begins when attribute has returned.
func measure(b *testing.B, to string, command func(to string) *exec.Cmd, attribute func(pid int)) cost {
	b.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		b.Fatal(err)
	}
	c := command(to)
	// A shell waits for the attribution and then becomes the command.
	held := exec.Command("/bin/sh", append([]string{"-c", `read -r go; exec "$@"`, "sh"}, c.Args...)...)
	held.Stderr = os.Stderr
	in, err := held.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := held.Start(); err != nil {
		b.Fatal(err)
	}
	attribute(held.Process.Pid)
	begun := time.Now()
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
	if err := held.Wait(); err != nil {
		b.Fatal(err)
	}
	wall := time.Since(begun)
	return cost{wall.Seconds(), (held.ProcessState.UserTime() + held.ProcessState.SystemTime()).Seconds()}
}

// checkRows verifies that there is a row of the author for each entry outside of the generated folders.
func checkRows(b *testing.B, n *node, root string, before int) {
	b.Helper()
	rows := map[string]bool{}
	for _, op := range n.activity.Rows()[before:] {
		if actor := op.GetAuthor().GetActor(); actor != session.GetActor() && op.GetPath() != "tree" {
			b.Fatalf("the row of %s has the author %s", op.GetPath(), actor)
		}
		rows[op.GetPath()] = true
	}
	missing := 0
	for _, path := range n.onDisk() {
		path = strings.TrimSuffix(path, "/")
		if n.drives.GeneratedTree(path) == "" && path != "tree" && !rows[path] {
			missing++
		}
	}
	if missing > 0 {
		b.Fatalf("%d entries have no row", missing)
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func makeFiles(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	content := []byte(strings.Repeat("All that is gold does not glitter. ", 60))
	for i := range benchmarkFiles {
		folder := filepath.Join(dir, fmt.Sprintf("folder%d", i/100))
		if i%100 == 0 {
			if err := os.Mkdir(folder, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, "file"+strconv.Itoa(i)), append(content, strconv.Itoa(i)...), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func run(b *testing.B, name string, arguments ...string) {
	b.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
	}
}
