package bucket_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"

	"github.com/atelier-run/atelier/computer/bucket"
)

// A beforeRename is a context that calls a function in Put's last look at it, before the object gets its name.
type beforeRename struct {
	context.Context
	call func()
}

func (c beforeRename) Err() error {
	c.call()
	return nil
}

// TestFailedSyncKeepsTheReplacedObject replaces an object while the folder cannot be synced, because the process has too many files
// open. There is an object afterwards; a new object is removed.
func TestFailedSyncKeepsTheReplacedObject(t *testing.T) {
	_, f := newFolder(t)
	put := func(ctx context.Context, name string) error {
		return f.Put(ctx, name, func(to io.Writer) error {
			_, err := io.WriteString(to, "content")
			return err
		})
	}
	if err := put(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "new"} {
		ctx := beforeRename{t.Context(), func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
				t.Error(err)
			}
		}}
		err := put(ctx, name)
		if restored := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restored != nil {
			t.Fatal(restored)
		}
		if !errors.Is(err, syscall.EMFILE) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Put(%q) returned %v, want %v", name, err, syscall.EMFILE)
		}
	}
	if err := read(t, f, "old"); err != nil {
		t.Errorf("the replaced object: %v", err)
	}
	if err := read(t, f, "new"); err == nil {
		t.Error("the new object is left")
	}
}

// read reads an object.
func read(t *testing.T, f *bucket.Folder, name string) error {
	t.Helper()
	from, err := f.Get(t.Context(), name)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(from)
	if string(content) != "content" {
		t.Errorf("%s has %q", name, content)
	}
	return errors.Join(err, from.Close())
}
