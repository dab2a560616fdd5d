package kinds_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
)

// forEachMessage calls fn with an empty message of each message type of this module.
func forEachMessage(fn func(name protoreflect.FullName, m proto.Message)) {
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if name := mt.Descriptor().FullName(); mt.Descriptor().ParentFile().Package().Parent().Parent() == "atelier" {
			fn(name, mt.New().Interface())
		}
		return true
	})
}

func TestKindsAreComplete(t *testing.T) {
	byName := map[string]entity.Kind{}
	for _, k := range kinds.All {
		if _, twice := byName[k.Name]; twice || k.Name == "" {
			t.Errorf("the name %q is empty or used twice", k.Name)
		}
		byName[k.Name] = k
	}
	for _, k := range kinds.All {
		if k.Version < 1 || k.Retention <= 0 {
			t.Errorf("%s: invalid version %d or retention %s", k.Name, k.Version, k.Retention)
		}
		owner, found := byName[k.Owner]
		if k.Owner != "" && (!found || owner.Owner != "") {
			t.Errorf("the owner %[2]q of %[1]s is not a kind, or has an owner itself", k.Name, k.Owner)
		}
		commands := 0
		forEachMessage(func(_ protoreflect.FullName, m proto.Message) {
			if k.IsCommand(m) {
				commands++
			}
		})
		if commands == 0 {
			t.Errorf("%s has no commands", k.Name)
		}
	}
}

func TestEveryMessageHasOneKind(t *testing.T) {
	events := 0
	forEachMessage(func(name protoreflect.FullName, m proto.Message) {
		commandOf, eventOf := 0, 0
		for _, k := range kinds.All {
			if k.IsCommand(m) {
				commandOf++
			}
			if k.IsEvent(m) {
				eventOf++
			}
		}
		events += eventOf
		if commandOf+eventOf > 1 {
			t.Errorf("%s is a command of %d kinds and an event of %d", name, commandOf, eventOf)
		}
	})
	if events < 40 {
		t.Errorf("only %d events were found", events)
	}
}

// TestEveryCommandIsDecided checks that the access table and the rules of a kind handle each of its commands.
func TestEveryCommandIsDecided(t *testing.T) {
	for _, k := range kinds.All {
		forEachMessage(func(name protoreflect.FullName, m proto.Message) {
			_, err := k.Access(m)
			if (err == nil) != k.IsCommand(m) {
				t.Errorf("%s: access of kind %s: %v", name, k.Name, err)
			}
			if k.Carry == nil || !k.IsCommand(m) {
				return
			}
			_, err = k.Carry(entity.Call{Identity: "x", Principal: entity.Platform()}, k.Zero("x"), m)
			if err != nil && strings.Contains(err.Error(), "is not a command of") {
				t.Errorf("%s is a command of kind %s, but its rules do not handle it", name, k.Name)
			}
		})
	}
}

// TestExposedEventsAreDeclared finds events of kinds which the edge uses that are neither Exposed nor Unexposed, and events that are both.
func TestExposedEventsAreDeclared(t *testing.T) {
	used := 0
	for _, k := range kinds.All {
		if k.Exposes == nil {
			continue
		}
		used++
		forEachMessage(func(name protoreflect.FullName, m proto.Message) {
			if _, declared := k.Exposes[string(name)]; declared != k.IsEvent(m) {
				t.Errorf("%s: declared as exposed or unexposed: %v, event of kind %s: %v", name, declared, k.Name, k.IsEvent(m))
			}
		})
	}
	if used < 6 {
		t.Errorf("the edge uses %d kinds", used)
	}
	for _, test := range []struct {
		kind, event string
		want        bool
	}{
		{entity.KindUser, "atelier.user.v1.UserDisabled", true},
		{entity.KindUser, "atelier.user.v1.ProfileChanged", false},
		{entity.KindUser, "atelier.user.v1.Later", true},
		{entity.KindSession, "atelier.session.v1.Later", false},
	} {
		if got := kinds.IsExposed(test.kind, test.event); got != test.want {
			t.Errorf("%s of kind %s: %v", test.event, test.kind, got)
		}
	}
}
