package server

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/atelier-run/atelier/entity"
)

func TestOutOfDescriptorsIsUnavailable(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		err := fmt.Errorf("reading: %w", &fs.PathError{Op: "open", Path: "x", Err: errno})
		if refused := publicError(err, "req_1"); refused.Code != entity.Unavailable || refused.RetryAfter == 0 {
			t.Errorf("%v: %v", errno, refused)
		}
	}
}
