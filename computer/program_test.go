package computer_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// TestProgram replaces and removes the file of a program. Path is the path of the file until then, and later the path of a copy.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	path, drives := filepath.Join(dir, "program"), filepath.Join(dir, "drives")
	copied := filepath.Join(drives, ".program")
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "first")
	write(copied, "that of an earlier process")
	p, err := computer.OpenProgram(path, drives)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when, want string) {
		t.Helper()
		got, err := p.Path()
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", when, got, err, want)
		}
		content, err := os.ReadFile(got)
		if err != nil || string(content) != "first" {
			t.Errorf("%s: %q, %v", when, content, err)
		}
		if at, err := os.Stat(got); err != nil || at.Mode()&0o111 != 0o111 {
			t.Errorf("%s: %v, %v", when, at.Mode(), err)
		}
	}
	expect("as it was opened", path)
	if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy of an earlier process: %v", err)
	}
	write(path, "second")
	expect("replaced", copied)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("removed", copied)
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	write(copied+".new", "a part")
	expect("without the copy", copied)
	if err := os.RemoveAll(drives); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Path(); !entity.HasCode(err, entity.Unavailable) {
		t.Errorf("where no copy can be: %q, %v", got, err)
	}
	write(copied, "longer than the program")
	expect("with a file of another size as the copy", copied)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(drives); err != nil || len(left) != 0 {
		t.Errorf("left after Close: %v, %v", left, err)
	}
}
