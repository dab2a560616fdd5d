// Package entitytest tests rules against the laws that the rules of every kind must satisfy.
package entitytest

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
)

// Rules are the rules under test of one kind.
type Rules[S, C, E proto.Message] struct {
	Decide func(entity.Call, S, C) ([]E, error)
	Evolve func(S, E) S
}

// Execute decides a command and applies its events. It fails the test if a refusal has no code or has events, if Evolve
// changes its argument, or if the same command has events a second time.
func (r Rules[S, C, E]) Execute(t rapid.TB, call entity.Call, s S, c C) (S, []E, error) {
	t.Helper()
	events, err := r.Decide(call, s, c)
	if err != nil {
		if Code(err) == "" || len(events) > 0 {
			t.Fatalf("%T: refused with %v and %d events", c, err, len(events))
		}
		return s, nil, err
	}
	for _, e := range events {
		before := proto.Clone(s)
		next := r.Evolve(s, e)
		if !proto.Equal(before, s) {
			t.Fatalf("Evolve changed its argument for %T", e)
		}
		s = next
	}
	if again, err := r.Decide(call, s, c); err != nil || len(again) > 0 {
		t.Fatalf("%T a second time: %v, %v", c, again, err)
	}
	return s, events, nil
}

// Code returns the code of a refusal, or an empty code if err is not an *entity.Error.
func Code(err error) entity.Code {
	var refusal *entity.Error
	if !errors.As(err, &refusal) || refusal == nil {
		return ""
	}
	return refusal.Code
}

// EqualReactions fails the test unless got has the same reactions as want, in the same order.
func EqualReactions(t testing.TB, got, want []entity.Reaction) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d reactions, want %d: %v", len(got), len(want), got)
	}
	for i := range got {
		if !equalCommand(&got[i].Command, &want[i].Command) || !equalCommand(got[i].Condition, want[i].Condition) ||
			!equalCommand(got[i].Otherwise, want[i].Otherwise) {
			t.Errorf("reaction %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func equalCommand(a, b *entity.Command) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Identity == b.Identity && proto.Equal(a.Principal, b.Principal) && proto.Equal(a.Message, b.Message)
}
