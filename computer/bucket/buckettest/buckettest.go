// Package buckettest is the conformance suite of implementations of bucket.Bucket.
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

// Run tests the buckets that open returns, each of which is empty.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	t.Run("objects of all sizes come back", func(t *testing.T) { sizes(t, open(t)) })
	t.Run("an object is replaced", func(t *testing.T) { replaced(t, open(t)) })
	t.Run("a failed write changes nothing", func(t *testing.T) { failed(t, open(t)) })
	t.Run("a write that is cancelled changes nothing", func(t *testing.T) { cancelled(t, open(t)) })
	t.Run("an absent object is said to be absent", func(t *testing.T) { absent(t, open(t)) })
	t.Run("objects are written at the same time", func(t *testing.T) { parallel(t, open(t)) })
}

const name = "ws_1/bkp_1.tar.zst"

// content returns bytes that differ from place to place.
func content(size int) []byte {
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return all
}

func writing(all []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := io.Copy(to, bytes.NewReader(all))
		return err
	}
}

func put(t *testing.T, b bucket.Bucket, name string, all []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, writing(all)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// expect reads an object; want nil: there is none.
func expect(t *testing.T, b bucket.Bucket, name string, want []byte) {
	t.Helper()
	object, err := b.Get(t.Context(), name)
	if want == nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that there is none", name, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got, err := io.ReadAll(object)
	if err = errors.Join(err, object.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
	}
}

func sizes(t *testing.T, b bucket.Bucket) {
	for _, size := range []int{0, 1, 4096, 8 << 20, 8<<20 + 1, 20 << 20} {
		name := fmt.Sprintf("ws_1/size-%d", size)
		put(t, b, name, content(size))
		expect(t, b, name, content(size))
	}
}

func replaced(t *testing.T, b bucket.Bucket) {
	put(t, b, name, content(9<<20))
	put(t, b, name, []byte("short"))
	expect(t, b, name, []byte("short"))
}

var errWrite = errors.New("the drive cannot be read")

func failed(t *testing.T, b bucket.Bucket) {
	put(t, b, name, []byte("before"))
	for _, name := range []string{name, "ws_2/bkp_2.tar.zst"} {
		for _, size := range []int{0, 1, 20 << 20} {
			err := b.Put(t.Context(), name, func(to io.Writer) error { return errors.Join(writing(content(size))(to), errWrite) })
			if !errors.Is(err, errWrite) {
				t.Errorf("%s of %d bytes: %v", name, size, err)
			}
		}
	}
	expect(t, b, name, []byte("before"))
	expect(t, b, "ws_2/bkp_2.tar.zst", nil)
}

func cancelled(t *testing.T, b bucket.Bucket) {
	put(t, b, name, []byte("before"))
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Put(ctx, name, func(to io.Writer) error {
		cancel()
		return writing(content(20 << 20))(to)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	expect(t, b, name, []byte("before"))
}

func absent(t *testing.T, b bucket.Bucket) {
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

func parallel(t *testing.T, b bucket.Bucket) {
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := b.Put(t.Context(), fmt.Sprintf("ws_%d/a", i), writing(content(9<<20+i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 4 {
		expect(t, b, fmt.Sprintf("ws_%d/a", i), content(9<<20+i))
	}
}
