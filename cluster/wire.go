package cluster

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// overWire encodes and decodes a command and its reply around handle.
func overWire(c entity.Command, handle func(entity.Command) (proto.Message, error)) (proto.Message, error) {
	sent, err := EncodeCommand(c)
	if err != nil {
		return nil, asEntityError(err)
	}
	received, err := DecodeCommand(sent)
	if err != nil {
		return nil, asEntityError(err)
	}
	answer, err := EncodeReply(handle(received))
	if err != nil {
		return nil, asEntityError(err)
	}
	return DecodeReply(answer)
}

// EncodeCommand encodes a command to send it to another member.
func EncodeCommand(c entity.Command) ([]byte, error) {
	payload, err := proto.Marshal(c.Message)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&wirev1.Command{
		Kind: c.Kind, Identity: c.Identity, Name: entity.MessageName(c.Message), Payload: payload,
		Principal: c.Principal, RequestId: c.RequestID, CommandId: c.ID, Source: encodeSource(c.Source),
	})
}

// DecodeCommand decodes a result of EncodeCommand. It fails if the bytes are malformed or the message type is unknown.
func DecodeCommand(b []byte) (entity.Command, error) {
	var w wirev1.Command
	if err := proto.Unmarshal(b, &w); err != nil {
		return entity.Command{}, err
	}
	m, err := entity.Message(w.GetName(), w.GetPayload())
	if err != nil {
		return entity.Command{}, err
	}
	return entity.Command{
		Kind: w.GetKind(), Identity: w.GetIdentity(), Principal: w.GetPrincipal(),
		RequestID: w.GetRequestId(), ID: w.GetCommandId(), Message: m,
		Source: decodeSource(w.GetSource()),
	}, nil
}

func encodeSource(s *entity.Source) *wirev1.Source {
	if s == nil {
		return nil
	}
	return &wirev1.Source{
		Partition: uint32(s.Partition), Stream: s.Stream, Version: s.Version, Sequence: s.Sequence, Index: s.Index,
	}
}

func decodeSource(s *wirev1.Source) *entity.Source {
	if s == nil {
		return nil
	}
	return &entity.Source{
		Partition: uint16(s.GetPartition()), Stream: s.GetStream(), Version: s.GetVersion(), Sequence: s.GetSequence(),
		Index: s.GetIndex(),
	}
}

// EncodeReply encodes a reply, or an error if err is not nil, to send it to another member.
func EncodeReply(m proto.Message, err error) ([]byte, error) {
	if err != nil {
		return proto.Marshal(&wirev1.Reply{Error: encodeError(err)})
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&wirev1.Reply{Name: entity.MessageName(m), Payload: payload})
}

// DecodeReply decodes a result of EncodeReply. It returns the reply or the encoded error. Errors: *entity.Error; internal
// if the bytes are malformed or the message type is unknown.
func DecodeReply(b []byte) (proto.Message, error) {
	var w wirev1.Reply
	if err := proto.Unmarshal(b, &w); err != nil {
		return nil, asEntityError(err)
	}
	if e := w.GetError(); e != nil {
		return nil, &entity.Error{
			Code: entity.Code(e.GetCode()), Message: e.GetMessage(),
			RetryAfter: time.Duration(e.GetRetryAfterMs()) * time.Millisecond, Reason: e.GetReason(),
		}
	}
	m, err := entity.Message(w.GetName(), w.GetPayload())
	if err != nil {
		return nil, asEntityError(err)
	}
	return m, nil
}

func encodeError(err error) *wirev1.Error {
	var refusal *entity.Error
	if !errors.As(err, &refusal) {
		return &wirev1.Error{Code: string(entity.Internal), Message: err.Error()}
	}
	return &wirev1.Error{
		Code: string(refusal.Code), Message: refusal.Message,
		RetryAfterMs: refusal.RetryAfter.Milliseconds(), Reason: refusal.Reason,
	}
}
