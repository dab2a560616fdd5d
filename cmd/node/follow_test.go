package node

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// until waits until a condition holds.
func (h *home) until(holds func() bool) {
	h.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(testTimeout)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			h.Fatal("the condition does not hold in time")
		}
	}
}

// workspace returns the state of the workspace.
func (h *home) workspace() *workspacev1.Workspace {
	h.Helper()
	return h.ask(entity.KindWorkspace, &workspacev1.DescribeWorkspace{}).(*workspacev1.Description).GetWorkspace()
}

// request sends a request on the drive as a person.
func (h *home) request(userID, method, path, body string) *httptest.ResponseRecorder {
	h.Helper()
	r := httptest.NewRequestWithContext(h.Context(), method, "/drive"+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.check(h.webdav.ServeDrive(w, r, "/drive", entity.DriveAccess{
		WorkspaceID: ws, Principal: &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: userID},
	}))
	return w
}

// removeRows removes all entries of indexes, as if the version that wrote the journal did not have them. It needs the first
// term.
func (h *home) removeRows(indexes ...string) {
	h.Helper()
	p := h.Router.Partition(ws)
	v, err := h.Journal.View()
	h.check(err)
	defer v.Close()
	var all []persistence.Change
	for _, index := range indexes {
		for row, err := range v.Index(p, persistence.Query{Index: index, Prefix: true}) {
			h.check(err)
			all = append(all, persistence.Change{Remove: true, Entry: persistence.Entry{
				Index: index, Value: strings.Clone(row.Value), Order: row.Order,
			}})
		}
	}
	if len(all) == 0 {
		h.Fatal("there are no rows")
	}
	removed := make(chan error, 1)
	h.Journal.Append(persistence.Proposal{Partition: p, Stream: "rows/test", Epoch: 1, Entries: all}, func(r persistence.Result) {
		removed <- r.Err
	})
	h.check(<-removed)
}

const exclusiveLock = `<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>`

// TestLocksOfFormerEditor verifies that the locks of a member who lost the right to change files are removed before the answer;
// if the drive cannot be opened, by the next process.
func TestLocksOfFormerEditor(t *testing.T) {
	join := func(h *home) {
		h.done()
		h.put("a", "x")
		h.ask(entity.KindWorkspace, &workspacev1.Invite{
			InvitationId: "inv_1", Email: "bob@example.com", Role: workspacev1.Role_ROLE_EDITOR, SecretSha256: make([]byte, 32),
			Inviter: &workspacev1.Person{UserId: "usr_1"},
		})
		bob := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_2"}
		h.as(bob, entity.KindWorkspace, &workspacev1.AcceptInvitation{
			InvitationId: "inv_1", Person: &workspacev1.Person{UserId: "usr_2", Email: "bob@example.com"},
		})
		if w := h.request("usr_2", "LOCK", "/a", exclusiveLock); w.Code != http.StatusOK {
			h.Fatalf("LOCK: %d %s", w.Code, w.Body)
		}
		if w := h.request("usr_1", "PUT", "/a", "y"); w.Code != http.StatusLocked {
			h.Fatalf("PUT: %d %s", w.Code, w.Body)
		}
	}
	gone := func(h *home) {
		h.Helper()
		if w := h.request("usr_1", "PUT", "/a", "y"); w.Code != http.StatusNoContent {
			h.Errorf("PUT: %d %s", w.Code, w.Body)
		}
	}
	t.Run("removed before the answer", func(t *testing.T) {
		h := newHome(t)
		join(h)
		h.ask(entity.KindWorkspace, &workspacev1.ChangeRole{UserId: "usr_2", Role: workspacev1.Role_ROLE_VIEWER})
		h.settle()
		gone(h)
	})
	t.Run("removed by the next process", func(t *testing.T) {
		h := newHome(t)
		join(h)
		h.stop()
		drive := filepath.Join(h.dir, "drives", ws)
		h.check(os.Rename(drive, drive+".away"))
		h.check(os.WriteFile(drive, nil, 0o600))
		h.start()
		h.ask(entity.KindWorkspace, &workspacev1.RemoveMember{UserId: "usr_2"})
		if w := h.workspace(); w.GetLockRemovals()["usr_2"] == nil {
			t.Error("no removal of the locks is open")
		}
		h.stop()
		h.check(os.Remove(drive))
		h.check(os.Rename(drive+".away", drive))
		h.start()
		h.until(func() bool { return len(h.workspace().GetLockRemovals()) == 0 })
		gone(h)
	})
}

// TestProvisioningWithoutItsTask verifies that a workspace is provisioned that was being provisioned when a version without
// tasks was stopped.
func TestProvisioningWithoutItsTask(t *testing.T) {
	h := newUnprovisionedHome(t)
	h.until(func() bool { return h.hasRows("declared") })
	h.removeRows("task", "declared")
	h.stop()
	h.check(os.Remove(h.blockedDrive()))
	h.start()
	h.until(func() bool { return h.hasRows("declared") })
	if state := h.done(); state.GetStatus() != computerv1.Status_STATUS_ACTIVE {
		t.Errorf("computer %v", state)
	}
}

func (h *home) hasRows(index string) bool {
	h.Helper()
	v, err := h.Journal.View()
	h.check(err)
	defer v.Close()
	for _, err := range v.Index(h.Router.Partition(ws), persistence.Query{Index: index, Prefix: true}) {
		h.check(err)
		return true
	}
	return false
}

// TestDrivesAreRecoveredWithTheTerm verifies that the process that acquires a partition recovers the drives with unfinished
// operations before they are opened.
func TestDrivesAreRecoveredWithTheTerm(t *testing.T) {
	h := newHome(t)
	h.done()
	h.ask(entity.KindActivity, &activityv1.Intend{Intent: &activityv1.Intent{Id: "i1", Operation: &activityv1.Operation{
		Kind: activityv1.Kind_KIND_CREATE, Path: "a", EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Author: change.Author,
	}}})
	h.stop()
	h.start()
	h.until(func() bool {
		return len(h.ask(entity.KindActivity, &activityv1.ListIntents{}).(*activityv1.Intents).GetIntents()) == 0
	})
}
