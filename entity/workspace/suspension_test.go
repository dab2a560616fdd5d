package workspace_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// checkSuspension fails the test unless the reply and the state have the suspension.
func (w *world) checkSuspension(reply proto.Message, want *workspacev1.Suspension, changedAt time.Time) {
	w.t.Helper()
	shown := reply.(*workspacev1.Description).GetWorkspace()
	for _, s := range []*workspacev1.Workspace{shown, w.s} {
		if !proto.Equal(s.GetSuspension(), want) || s.GetServicingChangedAt() != changedAt.UnixMilli() {
			w.t.Errorf("%v since %d, want %v since %d", s.GetSuspension(), s.GetServicingChangedAt(), want, changedAt.UnixMilli())
		}
	}
}

func TestSuspensionByOwner(t *testing.T) {
	w := newReadyWorld(t)
	at := noon.UnixMilli()
	w.mustNotChange(person("ann"), &workspacev1.Resume{})
	reply, _ := w.must(person("ann"), &workspacev1.Suspend{Reason: "rent"})
	w.checkSuspension(reply, &workspacev1.Suspension{At: at, Reason: "rent"}, noon)
	w.now = w.now.Add(time.Hour)
	w.mustNotChange(person("ann"), &workspacev1.Suspend{Reason: "rent"})
	reply, _ = w.must(person("ann"), &workspacev1.Suspend{Reason: "leave"})
	w.checkSuspension(reply, &workspacev1.Suspension{At: at, Reason: "leave"}, noon)
	if last := w.lastAudit(); last.GetEvent() != "workspace.suspended" || last.GetActorId() != "ann" ||
		!proto.Equal(last.GetProvenance(), &auditv1.Provenance{Reason: "leave"}) {
		t.Errorf("%v", last)
	}
	reply, _ = w.must(person("ann"), &workspacev1.Resume{})
	w.checkSuspension(reply, nil, w.now)
	if last := w.lastAudit(); last.GetEvent() != "workspace.resumed" {
		t.Errorf("%v", last)
	}
}

func TestSuspensionByOperator(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), &workspacev1.Suspend{Reason: "rent"})
	reply, _ := w.must(entity.Platform(), &workspacev1.Suspend{Reason: "rent"})
	w.checkSuspension(reply, &workspacev1.Suspension{At: noon.UnixMilli(), Reason: "rent", ByOperator: true}, noon)
	if last := w.lastAudit(); last.GetActorId() != "system" {
		t.Errorf("%v", last)
	}
	w.mustRefuse(person("ann"), &workspacev1.Resume{}, entity.Forbidden)
	w.mustRefuse(person("ann"), &workspacev1.Suspend{Reason: "rent"}, entity.Forbidden)
	w.mustRefuse(person("ann"), &workspacev1.Suspend{}, entity.Forbidden)
	w.must(entity.Platform(), &workspacev1.Resume{})
	w.must(person("ann"), &workspacev1.SetDefaultModel{Tier: workspacev1.Tier_TIER_BALANCED})
}

func TestSuspensionReason(t *testing.T) {
	w := newReadyWorld(t)
	w.mustRefuse(person("ann"), &workspacev1.Suspend{Reason: strings.Repeat("é", 1001)}, entity.InvalidRequest)
	w.mustRefuse(person("ann"), &workspacev1.Suspend{Reason: "\xff"}, entity.InvalidRequest)
	w.must(person("ann"), &workspacev1.Suspend{Reason: strings.Repeat("é", 1000)})
}
