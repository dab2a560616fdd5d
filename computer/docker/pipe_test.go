package docker

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

func TestPipe(t *testing.T) {
	t.Run("bytes arrive in order, and then the end", func(t *testing.T) {
		p, want := newPipe(), bytes.Repeat([]byte("0123456789"), pipeSize/4)
		go func() {
			_, _ = p.Write(want)
			p.end()
		}()
		if got, err := io.ReadAll(p); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	})
	t.Run("a full pipe stops the writer until it is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, isWritten := newPipe(), false
			go func() {
				n, err := p.Write(make([]byte, 3*pipeSize))
				if n != 3*pipeSize || err != nil {
					t.Errorf("Write returned %d, %v", n, err)
				}
				isWritten = true
			}()
			synctest.Wait()
			if isWritten || len(p.bytes) != pipeSize {
				t.Errorf("%d bytes wait", len(p.bytes))
			}
			_ = p.Close()
			synctest.Wait()
			if !isWritten {
				t.Error("the writer still waits")
			}
			if _, err := p.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("Read returned %v", err)
			}
		})
	})
	t.Run("a write after the end", func(t *testing.T) {
		p := newPipe()
		p.end()
		if _, err := p.Write([]byte("x")); err == nil {
			t.Error("Write returned no error")
		}
	})
}
