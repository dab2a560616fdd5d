package observe

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRows(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	tests := []struct {
		name, before, script string
		want                 []string
	}{
		{"new file", "", "echo a >a", []string{"session:ses_1 create a"}},
		{"empty file", "", ": >a", []string{"session:ses_1 create a"}},
		{"overwrite in place", "echo a >a", "echo b >a", []string{"session:ses_1 write a"}},
		{"append twice", "echo a >a", "echo b >>a; sleep 0.05; echo b >>a", []string{"session:ses_1 write a (2)"}},
		{"open without a write", "echo a >a", "exec 3<>a; exec 3>&-", nil},
		{"remove", "echo a >a", "rm a", []string{"session:ses_1 delete a"}},
		{"temporary file", "", "echo a >a; rm a", nil},
		{"write and remove", "echo a >a", "echo b >a; rm a", []string{"session:ses_1 delete a"}},
		{"replace", "echo a >a", "rm a; echo b >a", []string{"session:ses_1 write a"}},
		{"rename", "echo a >a", "mv a b", []string{"session:ses_1 rename a to b"}},
		{"rename twice", "echo a >a", "mv a b; mv b c", []string{"session:ses_1 rename a to c"}},
		{"rename and back", "echo a >a", "mv a b; mv b a", nil},
		{"rename over", "echo a >a; echo b >b", "mv a b", []string{"session:ses_1 rename a to b"}},
		{"save through a temporary file", "echo a >a", "echo b >.a.tmp; mv .a.tmp a", []string{"session:ses_1 write a"}},
		{"create through a temporary file", "", "echo b >.a.tmp; mv .a.tmp a", []string{"session:ses_1 create a"}},
		{"save with a backup", "echo a >a", "mv a a~; echo b >a; rm a~", []string{"session:ses_1 write a"}},
		{"exchange", "echo a >a; echo b >b", "python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"a\", -100, b\"b\", 2)'", []string{"session:ses_1 write b", "session:ses_1 write a"}},
		{"symbolic link", "", "ln -s nowhere a", []string{"session:ses_1 create a"}},
		{"hard link", "echo a >a", "ln a b", []string{"session:ses_1 create b"}},
		{"pipe", "", "mkfifo a", nil},
		{"permissions", "echo a >a", "chmod 600 a; touch -d @0 a", nil},
		{"folder", "", "mkdir -p a/b", []string{"session:ses_1 create folder a", "session:ses_1 create folder a/b"}},
		{"remove a tree", "mkdir -p a/b; echo c >a/b/c", "rm -r a",
			[]string{"session:ses_1 delete a/b/c", "session:ses_1 delete folder a/b", "session:ses_1 delete folder a"}},
		{"rename a folder", "mkdir a; echo b >a/b", "mv a c; echo d >c/b",
			[]string{"session:ses_1 rename folder a to c", "session:ses_1 write c/b"}},
		{"fill and rename a folder", "", "mkdir a; echo b >a/b; mv a c; echo d >c/d",
			[]string{"session:ses_1 create folder a", "session:ses_1 create a/b", "session:ses_1 rename folder a to c", "session:ses_1 create c/d"}},
		{"move a file in", "", "echo a >" + outside + "/in; mv " + outside + "/in a", []string{"session:ses_1 create a"}},
		{"move a file out", "echo a >a", "mv a " + outside + "/out", []string{"session:ses_1 delete a"}},
		{"move a tree in", "", "mkdir -p " + outside + "/t/u; echo a >" + outside + "/t/u/v; mv " + outside + "/t t; echo b >t/u/w",
			[]string{"session:ses_1 create folder t (4)", "session:ses_1 create t/u/w"}},
		{"move a tree out", "mkdir -p a/b; echo c >a/b/c", "mv a " + outside + "/a; echo d >" + outside + "/a/b/d",
			[]string{"session:ses_1 delete folder a (4)"}},
		{"generated tree", "", "mkdir -p node_modules/x; echo a >node_modules/x/a; rm -r node_modules/x",
			[]string{"session:ses_1 create folder node_modules"}},
		{"in a generated tree", "mkdir node_modules", "echo a >node_modules/a",
			[]string{"session:ses_1 create node_modules/a in node_modules"}},
		{"out of a generated tree", "mkdir build; echo a >build/a", "mv build/a a", []string{"session:ses_1 rename build/a to a"}},
		{"names that are no paths", "", "printf x >$'a\\nb'; printf x >$'\\xff'; mv $'\\xff' c", []string{"session:ses_1 create c"}},
		{"outlive the parent", "", "(setsid bash -c 'sleep 0.1; echo a >a' & ); while ! test -s a; do sleep 0.02; done",
			[]string{"session:ses_1 create a"}},
		{"map", "head -c 8192 /dev/zero >a; sleep 0.05", `python3 -c '
import mmap
with open("a", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
	m[0:5] = b"hello"
'`, []string{"session:ses_1 write a"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for attempt := 1; ; attempt++ {
				if err := os.RemoveAll(outside); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(outside, 0o700); err != nil {
					t.Fatal(err)
				}
				n := newNode(t, Options{})
				if test.before != "" {
					n.script(app, test.before)
				}
				before := len(n.rows())
				n.script(session, test.script)
				n.activity.Forget(before)
				if !n.hasMissed() || attempt == 5 {
					n.expect(test.want...)
					return
				}
			}
		})
	}
}

// hasMissed reports whether the observer has scanned the drive, because the queues of the kernel did not hold the events of this busy
// machine, or folders were gone before it came to their events. A scan has fewer rows.
func (n *node) hasMissed() bool {
	n.t.Helper()
	for _, queue := range []string{"kernel", "folders", "processes"} {
		if counter(n.t, n.observer.metrics.overflows.WithLabelValues(queue)) > 0 {
			return true
		}
	}
	return false
}
