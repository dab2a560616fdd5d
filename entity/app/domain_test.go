package app_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/entitytest"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const (
	pending  = appv1.DomainStatus_DOMAIN_STATUS_PENDING
	serving  = appv1.DomainStatus_DOMAIN_STATUS_ACTIVE
	failing  = appv1.DomainStatus_DOMAIN_STATUS_FAILED
	removing = appv1.DomainStatus_DOMAIN_STATUS_REMOVING
)

func attach(id, hostname string) *appv1.AttachDomain {
	return &appv1.AttachDomain{DomainId: id, Hostname: hostname}
}

// shows sends a report of the binding.
func (w *world) shows(revision uint64, status appv1.DomainStatus, change ...func(*appv1.Domain)) {
	w.t.Helper()
	d := &appv1.Domain{Id: w.s.GetDomain().GetId(), Hostname: "reported.example.com", Status: status, Revision: revision, LastCheckedAt: int64(revision)}
	for _, c := range change {
		c(d)
	}
	w.asPlatform(&appv1.ReportDomain{Domain: d})
}

func (w *world) domainRow() *appv1.DomainRow {
	row, _ := w.rows[app.DomainList+" "+entity.AscendingKey(7)].(*appv1.DomainRow)
	return row
}

func TestAttachDomain(t *testing.T) {
	w := newRunning(t)
	w.sent = nil
	w.must(attach("dom_1", "Shop.Example.com."))
	claim := &bindingv1.ClaimBinding{WorkspaceId: "ws_1", AppId: appID, DomainId: "dom_1"}
	if c := w.sent[0]; c.Kind != entity.KindBinding || c.Identity != "shop.example.com" || !proto.Equal(c.Message, claim) {
		t.Errorf("sent %v", c)
	}
	if !w.waits(&appv1.AwaitApp{DomainId: "dom_1"}) || w.waits(&appv1.AwaitApp{DomainId: "dom_2"}) || w.domainRow() != nil || w.logged() != nil {
		t.Error("the domain is shown before it is claimed")
	}
	w.mustNotChange(attach("dom_2", "shop.example.com"))
	w.refused(attach("dom_2", "other.example.com"), entity.DomainOccupied)
	w.refused(attach("dom_2", "localhost"), entity.InvalidRequest)
	w.shows(3, pending)
	d := w.s.GetDomain()
	if w.waits(&appv1.AwaitApp{DomainId: "dom_1"}) || d.GetHostname() != "shop.example.com" || d.GetCreatedAt() != w.now.UnixMilli() || !d.GetClaimed() {
		t.Errorf("claimed: %v", d)
	}
	if row := w.domainRow(); row.GetSlug() != "shop" || row.GetAppId() != appID || row.GetDomain().GetStatus() != pending {
		t.Errorf("row %v", row)
	}
	w.shows(2, serving)
	if w.s.GetDomain().GetStatus() != pending {
		t.Error("an older report counts")
	}
	w.shows(4, serving)
	w.shows(5, serving)
	w.shows(6, failing, func(d *appv1.Domain) { d.LastError = "gone" })
	want := []string{"domain.attached", "domain.activated", "domain.failed"}
	attached, failure := w.log[0], w.log[2]
	if got := w.logged(); !slices.Equal(got, want) || attached.GetActorId() != "alice" || failure.GetProvenance().GetReason() != "gone" ||
		failure.GetProvenance().GetName() != "shop.example.com" {
		t.Errorf("logged %v", got)
	}
	w.asPlatform(&appv1.ReportDomain{Domain: &appv1.Domain{Id: "dom_9", Revision: 99}})
	if w.s.GetDomain().GetRevision() != 6 {
		t.Error("a report about another domain counts")
	}
}

func TestAttachIsRefusedByTheBinding(t *testing.T) {
	for code, want := range map[string]entity.Code{
		"hostname_in_use": entity.HostnameInUse, "domain_cleanup_pending": entity.DomainCleanupPending, "": entity.HostnameInUse,
	} {
		w := newRunning(t)
		w.must(attach("dom_1", "shop.example.com"))
		w.asPlatform(&appv1.ReportDomainRefused{DomainId: "dom_0", Code: code})
		w.asPlatform(&appv1.ReportDomainRefused{DomainId: "dom_1", Code: code})
		if w.s.GetDomain() != nil || w.waits(&appv1.AwaitApp{DomainId: "dom_1"}) || w.logged() != nil {
			t.Errorf("%v", w.s)
		}
		if err := app.RefusalOf(w.s, "dom_1"); entitytest.Code(err) != want {
			t.Errorf("%q: %v", code, err)
		}
		if app.RefusalOf(w.s, "dom_2") != nil || app.RefusalOf(w.s, "") != nil {
			t.Error("another request is refused")
		}
		w.must(attach("dom_2", "shop.example.com"))
		w.shows(1, pending)
		if app.RefusalOf(w.s, "dom_1") != nil {
			t.Error("the refusal remains")
		}
		w.platform().mustNotChange(&appv1.ReportDomainRefused{DomainId: "dom_2"})
	}
}

func TestRecheckDomain(t *testing.T) {
	w := newRunning(t)
	w.refused(&appv1.RecheckDomain{}, entity.DomainNotConfigured)
	w.must(attach("dom_1", "shop.example.com"))
	w.shows(1, serving)
	w.sent = nil
	w.must(&appv1.RecheckDomain{})
	w.mustNotChange(&appv1.RecheckDomain{})
	if d := w.s.GetDomain(); !d.GetChecking() || d.GetStatus() != serving || !proto.Equal(w.sent[0].Message, &bindingv1.RecheckBinding{DomainId: "dom_1"}) {
		t.Errorf("%v, %v", d, w.sent)
	}
	w.shows(2, serving)
	if w.s.GetDomain().GetChecking() {
		t.Error("the check does not end")
	}
}

func TestRemoveDomain(t *testing.T) {
	w := newRunning(t)
	w.mustNotChange(&appv1.RemoveDomain{})
	w.must(attach("dom_1", "shop.example.com"))
	w.shows(1, serving)
	w.logged()
	w.sent = nil
	w.user("bob", editor).must(&appv1.RemoveDomain{})
	w.mustNotChange(&appv1.RemoveDomain{})
	if w.s.GetDomain().GetStatus() != removing || !proto.Equal(w.sent[0].Message, &bindingv1.ReleaseBinding{DomainId: "dom_1"}) {
		t.Errorf("%v, %v", w.s.GetDomain(), w.sent)
	}
	w.refused(attach("dom_2", "shop.example.com"), entity.DomainCleanupPending)
	w.refused(attach("dom_2", "other.example.com"), entity.DomainCleanupPending)
	w.shows(2, serving) // a report from before the removal
	if w.s.GetDomain().GetStatus() != removing || w.domainRow().GetDomain().GetStatus() != removing {
		t.Error("a removed domain serves again")
	}
	w.mustNotChange(&appv1.RecheckDomain{})
	w.shows(3, removing, func(d *appv1.Domain) { d.RetryRequired = true })
	w.must(&appv1.RecheckDomain{})
	if w.s.GetDomain().GetRetryRequired() || !w.s.GetDomain().GetChecking() {
		t.Errorf("retried: %v", w.s.GetDomain())
	}
	w.mustNotChange(&appv1.RecheckDomain{}) // the retry is under way
	w.shows(4, removing, func(d *appv1.Domain) { d.RetryRequired, d.OperatorRepairRequired = true, true })
	w.mustNotChange(&appv1.RecheckDomain{})
	w.asPlatform(&appv1.ReportDomainReleased{DomainId: "dom_0"})
	w.asPlatform(&appv1.ReportDomainReleased{DomainId: "dom_1"})
	if w.s.GetDomain() != nil || w.domainRow() != nil {
		t.Errorf("released: %v", w.s.GetDomain())
	}
	actor := w.log[0].GetActorId()
	if got := w.logged(); !slices.Equal(got, []string{"domain.removed"}) || actor != "bob" {
		t.Errorf("logged %v by %s", got, actor)
	}
	w.must(attach("dom_2", "shop.example.com"))
}

func TestDomainEndsBeforeItIsClaimed(t *testing.T) {
	w := newRunning(t)
	w.must(attach("dom_1", "shop.example.com"))
	w.must(&appv1.RemoveDomain{})
	if w.waits(&appv1.AwaitApp{DomainId: "dom_1"}) {
		t.Error("the request waits for a domain that is removed")
	}
	w.shows(1, pending)
	w.asPlatform(&appv1.ReportDomainReleased{DomainId: "dom_1"})
	if w.s.GetDomain() != nil || w.logged() != nil {
		t.Errorf("%v", w.s.GetDomain())
	}
}

func TestOperatorReleasesTheBinding(t *testing.T) {
	w := newRunning(t)
	w.must(attach("dom_1", "shop.example.com"))
	w.shows(1, failing)
	w.asPlatform(&appv1.ReportDomainReleased{DomainId: "dom_1"})
	if got := w.logged(); !slices.Equal(got, []string{"domain.attached", "domain.failed", "domain.removed"}) || w.s.GetDomain() != nil {
		t.Errorf("logged %v", got)
	}
}

func TestAppIsRemovedWithItsDomain(t *testing.T) {
	w := newRunning(t)
	w.must(attach("dom_1", "shop.example.com"))
	w.shows(1, serving)
	w.logged()
	w.user("bob", editor).must(&appv1.RemoveApp{TaskId: "t"})
	w.sent = nil
	w.asPlatform(&appv1.ReportStopped{TaskId: "t"})
	if len(w.sent) != 2 || !proto.Equal(w.sent[0].Message, &bindingv1.ReleaseBinding{DomainId: "dom_1"}) || w.domainRow() != nil {
		t.Errorf("sent %v", w.sent)
	}
	by := w.log[0].GetActorId()
	if got := w.logged(); !slices.Equal(got, []string{"domain.removed", "app.deleted"}) || by != "bob" {
		t.Errorf("logged %v by %s", got, by)
	}
	w.mustNotChange(&appv1.ReportDomainReleased{DomainId: "dom_1"})
}
