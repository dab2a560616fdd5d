package process

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/atelier-run/atelier/client"
)

// TestWorkspaceJournal fills the share of a workspace in the journal with notes. The workspace is then refused everything that adds to it,
// also after a restart, and deletes. Another workspace goes on. Deleting the session gives the room back.
func TestWorkspaceJournal(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"), "--workspace-journal=1MiB")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	typed, err := api.New(c.address, c.key, api.WithHTTPClient(c.http))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: "other", Name: "Other"}); err != nil {
		t.Fatal(err)
	}
	const otherPath = "/v1/ws/other/agent/sessions"
	json := func(in any) string { return encoded(t, in) }
	begin := func(path string) string {
		created := c.expect(t, http.StatusCreated, http.MethodPost, path, json(map[string]string{"prompt": "say Hello."}), "Content-Type", "application/json")
		return path + "/" + decoded[struct{ SessionID string }](t, created).SessionID
	}
	full, second, other := begin(sessionsPath), begin(sessionsPath), begin(otherPath)
	note := func(session string, size int) (int, string) {
		body := json(map[string]string{"text": strings.Repeat("x", size)})
		status, answer, err := c.do(t.Context(), http.MethodPost, session+"/notes", []byte(body), "Content-Type", "application/json")
		if err != nil {
			t.Fatal(err)
		}
		return status, string(answer)
	}
	c.expect(t, http.StatusCreated, http.MethodPut, drivePath("a"), "content")

	const most = 190_000
	stored := 0
	for size := most; size > 0; {
		switch status, answer := note(full, size); {
		case status == http.StatusInsufficientStorage:
			if !strings.Contains(answer, `"error":"insufficient_storage"`) || !strings.Contains(answer, "1048576 bytes") {
				t.Errorf("the refusal is %s", answer)
			}
			size /= 2
		case status != http.StatusOK || stored > 1<<20:
			t.Fatalf("a note after %d bytes: %d %s", stored, status, answer)
		default:
			stored += size
		}
	}
	if stored < 900_000 {
		t.Errorf("%d bytes of notes were stored", stored)
	}
	refused := func() {
		t.Helper()
		if status, answer := note(second, most); status != http.StatusInsufficientStorage {
			t.Errorf("a note: %d %s", status, answer)
		}
		if status, answer := note(other, most); status != http.StatusOK {
			t.Errorf("a note of another workspace: %d %s", status, answer)
		}
	}
	refused()
	c.expect(t, http.StatusInsufficientStorage, http.MethodPut, drivePath("b"), "content")
	c.expect(t, http.StatusOK, http.MethodGet, drivePath("a"), "")
	c.expect(t, http.StatusNoContent, http.MethodDelete, drivePath("a"), "")
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d", code)
	}

	n = start(t, n.dir, "--workspace-journal=1MiB")
	c = newClient(n.address, key)
	refused()
	c.expect(t, http.StatusNoContent, http.MethodDelete, full, "")
	eventually(t, "the deletion has given room back", func() bool {
		status, _ := note(second, most)
		return status == http.StatusOK
	})
	c.expect(t, http.StatusCreated, http.MethodPut, drivePath("b"), "content")
	c.expect(t, http.StatusNotFound, http.MethodGet, full, "")
}

func encoded(t *testing.T, in any) string {
	t.Helper()
	out, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func decoded[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err, text)
	}
	return out
}
