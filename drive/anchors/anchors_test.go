package anchors_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/anchors"
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// fakeWorkspace is a workspace with one anchor at the path a, and its drive.
type fakeWorkspace struct {
	// driveError is returned by the drive.
	driveError error
	// refusal is returned for every command except ListAnchors.
	refusal error
	// isEmpty is set if no path exists on the drive.
	isEmpty bool
	// sent has the names and ids of the commands.
	sent []string
}

func (p *fakeWorkspace) Exists(context.Context, string, string) (bool, error) {
	return !p.isEmpty, p.driveError
}

func (p *fakeWorkspace) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	if _, is := c.Message.(*workspacev1.ListAnchors); is {
		return &workspacev1.Anchors{Anchors: []*workspacev1.Anchor{
			{Id: "anc_1", Path: "a", State: workspacev1.AnchorState_ANCHOR_STATE_ACTIVE},
		}}, nil
	}
	name := string(c.Message.ProtoReflect().Descriptor().Name())
	p.sent = append(p.sent, strings.TrimSpace(name+" "+c.ID))
	return nil, p.refusal
}

var removed = []byte("\x03" + `{"seq":9,"event":{"kind":"delete","at":9,"path":"a"}}`)

func TestReact(t *testing.T) {
	unreadable := errors.New("disk error")
	refused, busy := entity.Errorf(entity.NotFound, "no such anchor"), entity.Errorf(entity.Unavailable, "busy")
	for name, test := range map[string]struct {
		workspace fakeWorkspace
		row       string
		want      string
		err       error
	}{
		"path is gone: anchor breaks":                   {fakeWorkspace{isEmpty: true}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", nil},
		"path exists: nothing is sent":                  {fakeWorkspace{}, string(removed), "", nil},
		"refused command is not retried":                {fakeWorkspace{isEmpty: true, refusal: refused}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", nil},
		"workspace is unavailable":                      {fakeWorkspace{isEmpty: true, refusal: busy}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", busy},
		"drive is unreadable: check is requested":       {fakeWorkspace{driveError: unreadable}, string(removed), "RequestAnchorCheck trail:ws_1:9:check", nil},
		"drive is unreadable and workspace unavailable": {fakeWorkspace{driveError: unreadable, refusal: busy}, string(removed), "RequestAnchorCheck trail:ws_1:9:check", busy},
		"malformed row":                                 {fakeWorkspace{isEmpty: true}, "\x03{", "", nil},
		"row that moves no path":                        {fakeWorkspace{isEmpty: true}, "\x05" + string(removed[1:]), "", nil},
	} {
		p := &test.workspace
		err := anchors.New(p, p, slog.New(slog.DiscardHandler)).React(t.Context(), "ws_1", []byte(test.row))
		if got := strings.Join(p.sent, ", "); got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: sent %q, %v; want %q, %v", name, got, err, test.want, test.err)
		}
	}
}

// TestReactWithCanceledContext verifies that React sends nothing when the partition's term has ended. The next owner of the
// partition reacts to the row again.
func TestReactWithCanceledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &fakeWorkspace{driveError: context.Canceled}
	if err := anchors.New(p, p, slog.New(slog.DiscardHandler)).React(ctx, "ws_1", removed); err == nil || len(p.sent) > 0 {
		t.Errorf("sent %v, %v", p.sent, err)
	}
}

func TestCheck(t *testing.T) {
	p := &fakeWorkspace{isEmpty: true}
	report, err := anchors.New(p, p, slog.New(slog.DiscardHandler)).Check(t.Context(), "ws_1", &workspacev1.AnchorCheck{Check: 7})
	if err != nil || !proto.Equal(report, &workspacev1.ReportAnchorsChecked{Check: 7}) || strings.Join(p.sent, ", ") != "BreakAnchor" {
		t.Errorf("sent %v, reported %v, %v", p.sent, report, err)
	}
	p = &fakeWorkspace{driveError: errors.New("away")}
	report, err = anchors.New(p, p, slog.New(slog.DiscardHandler)).Check(t.Context(), "ws_1", &workspacev1.AnchorCheck{Check: 7})
	if err == nil || report != nil || len(p.sent) > 0 {
		t.Errorf("sent %v, reported %v, %v", p.sent, report, err)
	}
}
