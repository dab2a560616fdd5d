package actors_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/persistence"
)

// counter returns a kind with a version of its rules, which add step to the state with each claim.
func counter(version uint64, step int64) entity.Kind {
	return entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
		Name: "counter", Version: version,
		Zero: func(string) *slugv1.Slug { return &slugv1.Slug{} },
		Decide: func(_ entity.Call, _ *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
			if _, claims := c.(*slugv1.ClaimSlug); claims {
				return []slugv1.Event{&slugv1.SlugReleased{}}, nil
			}
			return nil, nil
		},
		Evolve: func(s *slugv1.Slug, _ slugv1.Event) *slugv1.Slug {
			return &slugv1.Slug{ReservedUntil: s.GetReservedUntil() + step}
		},
		Reply: func(_ entity.Call, s *slugv1.Slug, _ slugv1.Command, _ []slugv1.Event) proto.Message { return s },
	}.Kind()
}

// TestSnapshotOfOtherRulesIsIgnored verifies that the state is computed from the events if another version of the rules made
// the snapshot. A check compares a snapshot with the events only if the same version of the rules made it.
func TestSnapshotOfOtherRulesIsIgnored(t *testing.T) {
	const claims = 300
	b := newBench(t, func(b *bench) { b.extra = []entity.Kind{counter(1, 1)} })
	send := func(m proto.Message) int64 {
		return counted(b.mustAsk(entity.Command{Kind: "counter", Identity: "x", Principal: entity.Platform(), Message: m}))
	}
	for range claims {
		send(&slugv1.ClaimSlug{})
	}
	b.stop()
	b.extra = []entity.Kind{counter(2, 10)}
	b.start()
	v, err := b.journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if snapshot, err := v.Snapshot(b.router.Partition("x"), "counter/x"); err != nil || snapshot.Version < 200 {
		t.Fatalf("the snapshot of %d events is of version %d, %v", claims, snapshot.Version, err)
	}
	for _, test := range []struct {
		kind    entity.Kind
		isFault bool
	}{{counter(1, 1), false}, {counter(1, 10), true}, {counter(2, 10), false}} {
		var faults []string
		checker := actors.StreamChecker{Kinds: []entity.Kind{test.kind}, Report: func(_ persistence.Partition, what string, _ []persistence.Change) {
			faults = append(faults, what)
		}}
		err := checker.Check(t.Context(), v, b.journal.Partitions())
		isFault := strings.HasPrefix(strings.Join(faults, "\n"), "the snapshot of counter/x differs")
		if err != nil || isFault != test.isFault || len(faults) > 1 || len(faults) == 1 && !isFault {
			t.Errorf("a check by rules %d: %v, %v", test.kind.Version, faults, err)
		}
	}
	if got := send(&slugv1.ResolveSlug{}); got != 10*claims {
		t.Errorf("by the new rules the state is %d, want %d", got, 10*claims)
	}
}
