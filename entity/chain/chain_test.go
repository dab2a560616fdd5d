package chain_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func isEvent(m proto.Message) bool {
	switch m.(type) {
	case userv1.Event, emailv1.Event, credentialv1.Event, slugv1.Event, workspacev1.Event, computerv1.Event,
		devicev1.Event, clientv1.Event, grantv1.Event:
		return true
	default:
		return false
	}
}

// filled is a message with something in each of its fields.
func filled(m protoreflect.Message) proto.Message {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			filled(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(value(f))
		case f.Message() != nil:
			filled(m.Mutable(f).Message())
		default:
			m.Set(f, value(f))
		}
	}
	return m.Interface()
}

func value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{1})
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	default:
		return f.Default()
	}
}

// Events lists what Next and Claimed answer, and no more: an event that is not in it is never reacted to.
func TestEventsAreThoseThatSomethingFollowsFrom(t *testing.T) {
	listed := map[string]bool{}
	for _, e := range chain.Events() {
		if listed[entity.MessageName(e)] {
			t.Errorf("%T is listed twice", e)
		}
		listed[entity.MessageName(e)] = true
	}
	events := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if !isEvent(mt.New().Interface()) {
			return true
		}
		events++
		m := filled(mt.New())
		if changed, ok := m.(*workspacev1.StatusChanged); ok {
			changed.Status = workspacev1.Status_STATUS_DELETED
		}
		next := chain.React("identity", m)
		if name := entity.MessageName(m); (len(next) > 0) != listed[name] {
			t.Errorf("%s: listed %v, followed by %v", name, listed[name], next)
		}
		for _, c := range next {
			if c.Identity == "" || c.Kind == "" || c.Message == nil {
				t.Errorf("%T: %v", m, c)
			}
		}
		return true
	})
	if events < 50 {
		t.Fatalf("saw %d kinds of events", events)
	}
}

// An event that lacks what was added to it later is followed as far as it goes, and never by a command to nobody.
func TestOldEvents(t *testing.T) {
	for _, e := range []proto.Message{&userv1.ApiKeyIssued{}, &userv1.ApiKeyRevoked{}, &grantv1.Revoked{}, &userv1.PasswordSet{}} {
		for _, c := range chain.Next("identity", e) {
			if c.Kind != entity.KindCredential {
				t.Errorf("%T: %v", e, c)
			}
		}
	}
}
