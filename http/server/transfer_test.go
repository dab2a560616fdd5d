package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// deadlines is a response that records its deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// An access that ends when its transfer is over does not end the next request of the connection.
func TestTransferEndsBeforeItsAccess(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	transfer := newTraffic(http.NewResponseController(d), Limits{StallTime: time.Minute}, httptest.NewRequest(http.MethodPut, "/", http.NoBody))
	if err := transfer.beforeWrite(); err != nil {
		t.Fatal(err)
	}
	transfer.finish()
	next := time.Now().Add(time.Hour) // of the next request
	d.read, d.write = next, next
	transfer.cutOff(entity.Errorf(entity.Forbidden, "lost"))
	if !d.read.Equal(next) || !d.write.Equal(next) {
		t.Errorf("the deadlines of the next request are %v and %v", d.read, d.write)
	}
}
