package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// counter returns a kind with one event for each command. The sender of a command needs a capability.
func counter(name, owner string) entity.Kind {
	return entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
		Name: name, Owner: owner,
		Zero:   func(identity string) *slugv1.Slug { return &slugv1.Slug{Slug: identity} },
		Access: func(slugv1.Command) entity.Access { return entity.Requires(entity.Changes(entity.Sessions)) },
		Check:  func(entity.Call, *slugv1.Slug, entity.Need) error { return nil },
		Decide: func(entity.Call, *slugv1.Slug, slugv1.Command) ([]slugv1.Event, error) {
			return []slugv1.Event{&slugv1.SlugClaimed{}}, nil
		},
		Evolve: func(s *slugv1.Slug, _ slugv1.Event) *slugv1.Slug {
			return &slugv1.Slug{Slug: s.GetSlug(), ReservedUntil: s.GetReservedUntil() + 1}
		},
		Reply: func(_ entity.Call, s *slugv1.Slug, _ slugv1.Command, _ []slugv1.Event) proto.Message { return s },
	}.Kind()
}

// BenchmarkOwned sends durable commands of a person to an owner and to an entity that it owns, one at a time and 256 at a time.
// The owner authorizes both.
func BenchmarkOwned(b *testing.B) {
	store, _ := openJournal(b)
	router := cluster.NewRouter(store.Partitions(), false)
	system := actors.New(actors.Options{
		Journal: store, Partitions: store.Partitions(), Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		IdleAfter: time.Hour, Ask: router.Ask, Kinds: []entity.Kind{counter("owner", ""), counter("owned", "owner")},
	})
	router.Attach(system)
	system.Start()
	b.Cleanup(func() { system.Stop(context.Background()) })
	sender := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "key_1", UserId: "usr_1"}
	to := func(kind, identity string) func(int) error {
		return func(int) error {
			_, err := router.Ask(context.Background(), entity.Command{
				Kind: kind, Identity: identity, Principal: sender, Message: &slugv1.ResolveSlug{},
			})
			return err
		}
	}
	owner, owned := to("owner", "x"), to("owned", "x/1")
	for _, flying := range []int{1, inFlight} {
		b.Run(fmt.Sprint("inflight=", flying), func(b *testing.B) {
			variants := []Variant{
				{"owned", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, flying, owned) }},
				{"owner", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, flying, owner) }},
			}
			Rounds(b, time.Second, variants...).Report(b, "command", variants...)
		})
	}
}

// inParallel repeats call in concurrent workers for d and returns the number of calls and the time.
func inParallel(b *testing.B, d time.Duration, workers int, call func(int) error) (calls float64, took time.Duration) {
	var total atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			for time.Since(began) < d {
				if err := call(w); err != nil {
					b.Error(err)
					return
				}
				total.Add(1)
			}
		})
	}
	group.Wait()
	return float64(total.Load()), time.Since(began)
}
