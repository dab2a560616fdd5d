package actors_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// observed collects what Options.Observe is called with.
type observed struct {
	mu  sync.Mutex
	all []string
}

func (o *observed) see(kind, identity string, events []persistence.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range events {
		o.all = append(o.all, kind+"/"+identity+" "+e.Name[strings.LastIndexByte(e.Name, '.')+1:])
	}
}

// take returns the events that were seen since the last call.
func (o *observed) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// TestObserve checks that events are observed before their command is answered, once, in order, and only if they are durable.
func TestObserve(t *testing.T) {
	seen := &observed{}
	b := newBench(t, func(b *bench) { b.observe = seen.see })
	expect := func(want ...string) {
		t.Helper()
		if got := seen.take(); !slices.Equal(got, want) {
			t.Errorf("observed %q, want %q", got, want)
		}
	}
	b.createWorkspace("ws_1", "usr_1")
	if got := seen.take(); len(got) == 0 || got[0] != "workspace/ws_1 WorkspaceCreated" {
		t.Errorf("observed %q", got)
	}
	command := func(m workspacev1.Command) entity.Command {
		return entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: entity.Platform(), Message: m}
	}
	b.mustAsk(command(&workspacev1.Suspend{}))
	expect("workspace/ws_1 WorkspaceSuspended")
	b.mustAsk(command(&workspacev1.Suspend{})) // already so
	b.mustAsk(command(&workspacev1.DescribeWorkspace{}))
	expect()
	b.faults.failing(refuseOnce("workspace/ws_1"))
	if _, err := b.ask(command(&workspacev1.Resume{})); err == nil {
		t.Error("the journal has refused nothing")
	}
	expect()
	b.mustAsk(command(&workspacev1.Resume{}))
	expect("workspace/ws_1 WorkspaceResumed")
}
