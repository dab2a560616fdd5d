package webdav_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/webdav"
)

// TestLocksSurviveEviction verifies that locks stay in force after the drive was evicted and opened again.
func TestLocksSurviveEviction(t *testing.T) {
	const workspaces = 12
	quiet := slog.New(slog.DiscardHandler)
	drives, err := drive.New(drive.Options{
		Dir: t.TempDir(), Asker: &drivetest.Activity{}, Log: quiet, Descriptors: drive.MinDescriptors,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drives.Close()
	handler := webdav.New(drives, quiet)
	do := func(id int, method, body string, headers ...string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(method, prefix+"/a", strings.NewReader(body))
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			request.Header.Set(name, value)
		}
		recorder := httptest.NewRecorder()
		access := accessOf(request)
		access.WorkspaceID = fmt.Sprintf("ws_%d", id)
		if err := handler.ServeDrive(recorder, request, prefix, access); err != nil {
			t.Fatal(err)
		}
		return recorder
	}
	for id := range workspaces {
		if err := drives.Provision(t.Context(), fmt.Sprintf("ws_%d", id)); err != nil {
			t.Fatal(err)
		}
	}
	token := do(0, "LOCK", exclusive).Header().Get("Lock-Token")
	for id := 1; id < workspaces; id++ {
		if status := do(id, "PUT", "1").Code; status != 201 {
			t.Fatalf("PUT in workspace %d: got %d, want 201", id, status)
		}
	}
	if status := do(0, "PUT", "1", stranger).Code; status != 423 {
		t.Errorf("PUT without the token: got %d, want 423", status)
	}
	if status := do(0, "PUT", "1", "If: ("+token+")").Code; status != 204 {
		t.Errorf("PUT with the token: got %d, want 204", status)
	}
}
