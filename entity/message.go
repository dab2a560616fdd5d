package entity

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// MessageName is a message's full name, under which Message finds it again.
func MessageName(m proto.Message) string { return string(m.ProtoReflect().Descriptor().FullName()) }

// Message decodes bytes by the full name of their message. A name that is not known is an error.
func Message(name string, payload []byte) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("message %q: %w", name, err)
	}
	m := t.New().Interface()
	if err := proto.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("message %q: %w", name, err)
	}
	return m, nil
}
