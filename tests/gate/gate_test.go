package gate

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/testmachine"
)

// passing is a package without a fault, which is tested beside the planted one.
const passing = `package passing

import "testing"

func TestPasses(t *testing.T) {}
`

// makefile has the targets that .ci/run calls, with the flags of the product's Makefile and a shorter time-out.
const makefile = `
build lint:
	@echo $@
test:
	tests/suite ./... -p 4 -count=1 -vet=off -timeout 10s
race:
	if [ -e planted/race_test.go ]; then CGO_ENABLED=1 tests/suite ./... -race -p 4 -count=1 -vet=off -timeout 10s; fi
`

func TestPlantedFaults(t *testing.T) {
	many := &strings.Builder{}
	for name := 'a'; name < 'a'+21; name++ {
		many.WriteString("func TestMany_" + string(name) + `(t *testing.T) { t.Error("planted " + os.Args[0]) }` + "\n")
	}
	tests := []struct {
		name string
		code string // of the package "planted", after its imports
		red  bool
		runs int      // of the planted test, or 0 if it does not count them
		says []string // within the last 60 lines
	}{
		{"failure", `func TestPlanted(t *testing.T) { count(); t.Log("before"); t.Error("planted message") }`,
			true, 3, []string{"== failed: make test", "--- planted/planted TestPlanted (", "planted message"}},
		{"unsteady", `func TestPlanted(t *testing.T) { if count() == 1 { t.Error("first output") } }`,
			false, 2, []string{"== passed", "unsteady (", "--- planted/planted TestPlanted (", "first output"}},
		{"unsteady subtest", `func TestPlanted(t *testing.T) {
			t.Run("a $b/c (d)", func(t *testing.T) { if count() == 1 { t.Error("first output") } })
			t.Run("other", func(t *testing.T) {})
		}`, false, 2, []string{"== passed", "unsteady (", "--- planted/planted TestPlanted/a_$b/c_(d) (", "first output"}},
		{"data race", `func TestPlanted(t *testing.T) {
			n, done := count(), make(chan int)
			go func() { n++; close(done) }()
			n++
			<-done
			t.Log(n)
		}`, true, 2, []string{"== failed: make race", "--- planted/planted TestPlanted [data race]", "WARNING: DATA RACE"}},
		{"left out of make race", `func TestPlanted(t *testing.T) { if count() > 1 { t.Skip("not with the race detector: planted") } }`,
			false, 2, []string{"== passed"}},
		{"left out of make test and make race", `func TestPlanted(t *testing.T) {
			if count() > 1 { t.Skip("not with the race detector: planted") }
			t.Skip("planted reason")
		}`, true, 2, []string{"== failed: make race", "--- planted/planted TestPlanted [has passed in no run]", "not with the race detector: planted"}},
		{"panic", `func TestPlanted(t *testing.T) { count(); panic("planted panic") }`,
			true, 1, []string{"--- planted/planted TestPlanted [panic]", "panic: planted panic"}},
		{"panic of a goroutine", `func TestPlanted(t *testing.T) { count(); go func() { panic("planted panic") }(); select {} }`,
			true, 1, []string{"--- planted/planted TestPlanted [panic]", "panic: planted panic"}},
		{"time-out", `
			func wait(c chan int) { <-c }
			func TestPlanted(t *testing.T) { count(); t.Parallel(); inPlanted(make(chan int)) }
			func inPlanted(c chan int) { <-c }
			func TestMain(m *testing.M) { for range 500 { go wait(make(chan int)) }; os.Exit(m.Run()) }`,
			true, 1, []string{"--- planted/planted TestPlanted [timed out]", "planted.inPlanted", "goroutines without a function of a running test are left out"}},
		{"build failure", `func TestPlanted(t *testing.T) { count(); missing() }`,
			true, 0, []string{"--- planted/planted [does not build]", "undefined: missing"}},
		{"exit", `func TestPlanted(t *testing.T) { if count() == 1 { os.Exit(3) } }`,
			true, 0, []string{"--- planted/planted TestPlanted [ended its process]"}},
		{"failed TestMain", `func TestMain(m *testing.M) { m.Run(); if count() == 1 { os.Stderr.WriteString("planted leak\n"); os.Exit(1) } }
			func TestPlanted(t *testing.T) {}`,
			true, 0, []string{"--- planted/planted [failed outside of its tests]", "planted leak"}},
		{"21 failures", many.String(),
			true, 0, []string{"21 tests failed, more than 20: none was run again", "--- planted/planted TestMany_a"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, test.code)
			if strings.Contains(test.name, "race") {
				if _, err := exec.LookPath("gcc"); err != nil {
					testmachine.Lacks(t, "the race detector needs gcc")
				}
				p.write(t, "planted/race_test.go", "package planted\n")
			}
			if err := p.command.Start(); err != nil {
				t.Fatal(err)
			}
			r := p.wait()
			if r.red != test.red {
				t.Errorf("red: %v, wanted %v", r.red, test.red)
			}
			for _, text := range test.says {
				if !strings.Contains(r.end, text) {
					t.Errorf("the last 60 lines lack %q", text)
				}
			}
			if r.runs != test.runs && test.runs != 0 {
				t.Errorf("the planted test was run %d times, wanted %d", r.runs, test.runs)
			}
			if t.Failed() || testing.Verbose() {
				t.Log(r.output)
			}
		})
	}
}

// TestEndedRun verifies that a run that is ended by a signal says which test was running.
func TestEndedRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t, `func TestPlanted(t *testing.T) { select {} }`)
	temporary := t.TempDir()
	p.command.Env = append(p.command.Env, "TMPDIR="+temporary)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	for !hasEvent(temporary, `"Test":"TestPlanted"`) {
		<-time.After(20 * time.Millisecond)
	}
	p.command.Process.Signal(syscall.SIGTERM)
	if r := p.wait(); !r.red || !strings.Contains(r.end, "== failed: make test") || !strings.Contains(r.end, "TestPlanted") {
		t.Errorf("a run that was ended by SIGTERM: red %v\n%s", r.red, r.output)
	}
}

// TestLeftovers kills a run, but not the processes that it has started. The next run ends them and removes the folder.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, `func TestPlanted(t *testing.T) { exec.Command("sleep", "1000").Start(); println("it has a child"); select {} }`)
	temporary := t.TempDir()
	run := exec.Command("tests/suite", "./planted", "-count=1")
	run.Dir, run.Env = p.dir, append(p.command.Env, "TMPDIR="+temporary)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	for !hasEvent(temporary, "it has a child") {
		<-time.After(20 * time.Millisecond)
	}
	run.Process.Kill()
	run.Wait()
	if left := processesOf(temporary); left == 0 {
		t.Fatal("no process has outlived the run")
	}
	next := exec.Command("tests/leftovers")
	next.Dir, next.Env = p.dir, run.Env
	if out, err := next.CombinedOutput(); err != nil || !strings.Contains(string(out), "removing what the killed run") {
		t.Errorf("%v: %s", err, out)
	}
	folders, _ := filepath.Glob(filepath.Join(temporary, "*"))
	if len(folders) > 0 {
		t.Errorf("left are %v", folders)
	}
	for processesOf(temporary) > 0 {
		<-time.After(20 * time.Millisecond)
	}
}

// processesOf returns the number of processes with a TMPDIR below the folder.
func processesOf(folder string) (count int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		if content, _ := os.ReadFile(name); bytes.Contains(content, []byte("TMPDIR="+folder+"/")) {
			count++
		}
	}
	return count
}

// hasEvent reports whether the events of the run have a text.
func hasEvent(temporary, text string) bool {
	events, _ := filepath.Glob(filepath.Join(temporary, "at-*", "events"))
	for _, name := range events {
		if content, _ := os.ReadFile(name); bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

// A place is a module with a planted package and copies of the scripts.
type place struct {
	dir     string
	command *exec.Cmd // .ci/run
	output  bytes.Buffer
}

type result struct {
	red         bool
	output, end string
	runs        int
}

func newPlace(t *testing.T, code string) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	for _, name := range []string{".ci/run", "tests/suite", "tests/facts", "tests/leftovers", "tools/go.mod", "tools/go.sum"} {
		p.copy(t, name)
	}
	sources, err := filepath.Glob("../../tools/verdict/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		p.copy(t, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
	}
	p.write(t, "go.mod", "module planted\n\ngo 1.26\n")
	p.write(t, "Makefile", makefile)
	p.write(t, "passing/passing_test.go", passing)
	p.write(t, "planted/planted_test.go", "package planted\n\nimport (\n\"os\"\n\"os/exec\"\n\"testing\"\n)\n\nvar _, _ = os.Args, exec.Command\n\n"+code+"\n")
	p.write(t, "planted/count_test.go", `package planted

import "os"

// count returns how often it was called, in all runs together.
func count() int {
	f, err := os.OpenFile("../count", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	f.Write([]byte{'.'})
	info, _ := f.Stat()
	return int(info.Size())
}
`)
	p.command = exec.Command(filepath.Join(p.dir, ".ci/run"))
	p.command.Env = append(os.Environ(), "MINUTES=", "RERUNS=", "SUMMARY=", "PASSED=", "MAKEFLAGS=")
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	return p
}

func (p *place) wait() result {
	r := result{red: p.command.Wait() != nil, output: p.output.String()}
	lines := strings.Split(r.output, "\n")
	r.end = strings.Join(lines[max(0, len(lines)-61):], "\n")
	counted, _ := os.ReadFile(filepath.Join(p.dir, "count"))
	r.runs = len(counted)
	return r
}

func (p *place) copy(t *testing.T, name string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, name, string(content))
}

func (p *place) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}
