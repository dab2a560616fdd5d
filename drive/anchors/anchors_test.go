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

// place is a workspace with one anchor at the path a, and its drive.
type place struct {
	// away is the error of a drive that cannot be asked.
	away error
	// refusal answers every command but ListAnchors.
	refusal error
	// gone: there is nothing at any path.
	gone bool
	sent []string
}

func (p *place) Exists(context.Context, string, string) (bool, error) { return !p.gone, p.away }

func (p *place) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
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
	away := errors.New("away")
	refused, busy := entity.Errorf(entity.NotFound, "no such anchor"), entity.Errorf(entity.Unavailable, "busy")
	for name, test := range map[string]struct {
		place place
		row   string
		want  string
		err   error
	}{
		"it breaks":                {place{gone: true}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", nil},
		"it is there":              {place{}, string(removed), "", nil},
		"a refusal ends it":        {place{gone: true, refusal: refused}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", nil},
		"a busy workspace":         {place{gone: true, refusal: busy}, string(removed), "BreakAnchor trail:ws_1:9:anc_1", busy},
		"the drive is away":        {place{away: away}, string(removed), "RequestAnchorCheck trail:ws_1:9:check", nil},
		"away, and busy":           {place{away: away, refusal: busy}, string(removed), "RequestAnchorCheck trail:ws_1:9:check", busy},
		"what cannot be read":      {place{gone: true}, "\x03{", "", nil},
		"nothing that moves paths": {place{gone: true}, "\x05" + string(removed[1:]), "", nil},
	} {
		p := &test.place
		err := anchors.New(p, p, slog.New(slog.DiscardHandler)).React(t.Context(), "ws_1", []byte(test.row))
		if got := strings.Join(p.sent, ", "); got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: sent %q, %v; want %q, %v", name, got, err, test.want, test.err)
		}
	}
}

// A reaction whose term has ended asks for nothing: the row is followed again by whoever leads the partition then.
func TestReactEndsWithItsTerm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &place{away: context.Canceled}
	if err := anchors.New(p, p, slog.New(slog.DiscardHandler)).React(ctx, "ws_1", removed); err == nil || len(p.sent) > 0 {
		t.Errorf("sent %v, %v", p.sent, err)
	}
}

func TestCheck(t *testing.T) {
	p := &place{gone: true}
	report, err := anchors.New(p, p, slog.New(slog.DiscardHandler)).Check(t.Context(), "ws_1", &workspacev1.AnchorCheck{Check: 7})
	if err != nil || !proto.Equal(report, &workspacev1.ReportAnchorsChecked{Check: 7}) || strings.Join(p.sent, ", ") != "BreakAnchor" {
		t.Errorf("sent %v, reported %v, %v", p.sent, report, err)
	}
	p = &place{away: errors.New("away")}
	report, err = anchors.New(p, p, slog.New(slog.DiscardHandler)).Check(t.Context(), "ws_1", &workspacev1.AnchorCheck{Check: 7})
	if err == nil || report != nil || len(p.sent) > 0 {
		t.Errorf("sent %v, reported %v, %v", p.sent, report, err)
	}
}
