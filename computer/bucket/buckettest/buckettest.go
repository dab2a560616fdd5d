// Package buckettest is the conformance suite for implementations of bucket.Bucket.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/computer/bucket"
)

// Run runs the suite. Each call of open must return a new, empty bucket.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	t.Run("put_and_get_objects_of_all_sizes", func(t *testing.T) { testSizes(t, open(t)) })
	t.Run("put_replaces_an_object", func(t *testing.T) { testReplacement(t, open(t)) })
	t.Run("failed_write_leaves_objects_unchanged", func(t *testing.T) { testFailedWrite(t, open(t)) })
	t.Run("cancelled_put_leaves_objects_unchanged", func(t *testing.T) { testCancelledPut(t, open(t)) })
	t.Run("missing_object_is_reported", func(t *testing.T) { testMissingObject(t, open(t)) })
	t.Run("objects_are_put_concurrently", func(t *testing.T) { testConcurrentPuts(t, open(t)) })
}

// name is the object that most tests use.
const name = "ws_1/bkp_1.tar.zst"

// content returns size bytes. Their pattern differs between blocks, so that an exchanged or repeated block is detected.
func content(size int) []byte {
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return all
}

// writeAll returns a function for Put that writes all bytes.
func writeAll(all []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := io.Copy(to, bytes.NewReader(all))
		return err
	}
}

// put stores an object.
func put(t *testing.T, b bucket.Bucket, name string, all []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, writeAll(all)); err != nil {
		t.Fatalf("Put(%q) returned %v", name, err)
	}
}

// expect reads an object and compares its content with want. If want is nil, the object must not exist.
func expect(t *testing.T, b bucket.Bucket, name string, want []byte) {
	t.Helper()
	object, err := b.Get(t.Context(), name)
	if want == nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Get(%q) returned %v, want fs.ErrNotExist", name, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Get(%q) returned %v", name, err)
	}
	got, err := io.ReadAll(object)
	if err = errors.Join(err, object.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: read %d bytes (%v), want the %d bytes written", name, len(got), err, len(want))
	}
}

func testSizes(t *testing.T, b bucket.Bucket) {
	for _, size := range []int{0, 1, 4096, 8 << 20, 8<<20 + 1, 20 << 20} {
		name := fmt.Sprintf("ws_1/size-%d", size)
		put(t, b, name, content(size))
		expect(t, b, name, content(size))
	}
}

func testReplacement(t *testing.T, b bucket.Bucket) {
	put(t, b, name, content(9<<20))
	put(t, b, name, []byte("short"))
	expect(t, b, name, []byte("short"))
}

// errWrite is the error of a function that Put calls.
var errWrite = errors.New("the drive cannot be read")

func testFailedWrite(t *testing.T, b bucket.Bucket) {
	put(t, b, name, []byte("before"))
	for _, name := range []string{name, "ws_2/bkp_2.tar.zst"} {
		for _, size := range []int{0, 1, 20 << 20} {
			err := b.Put(t.Context(), name, func(to io.Writer) error { return errors.Join(writeAll(content(size))(to), errWrite) })
			if !errors.Is(err, errWrite) {
				t.Errorf("Put(%q) of %d bytes returned %v, want %v", name, size, err, errWrite)
			}
		}
	}
	expect(t, b, name, []byte("before"))
	expect(t, b, "ws_2/bkp_2.tar.zst", nil)
}

func testCancelledPut(t *testing.T, b bucket.Bucket) {
	put(t, b, name, []byte("before"))
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Put(ctx, name, func(to io.Writer) error {
		cancel()
		return writeAll(content(20 << 20))(to)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Put returned %v, want context.Canceled", err)
	}
	expect(t, b, name, []byte("before"))
}

func testMissingObject(t *testing.T, b bucket.Bucket) {
	expect(t, b, name, nil)
	if err := b.Delete(t.Context(), name); err != nil {
		t.Error(err)
	}
	put(t, b, name, []byte("there"))
	for range 2 {
		if err := b.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
		expect(t, b, name, nil)
	}
}

func testConcurrentPuts(t *testing.T, b bucket.Bucket) {
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := b.Put(t.Context(), fmt.Sprintf("ws_%d/a", i), writeAll(content(9<<20+i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 4 {
		expect(t, b, fmt.Sprintf("ws_%d/a", i), content(9<<20+i))
	}
}
