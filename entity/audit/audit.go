// Package audit builds the rows of audit logs. The audit log of a workspace is the list "audit", newest row first.
//
// The rules that decide an event also return its audit row, so both are committed in one batch. Entities of several kinds
// write to the log of one workspace: the workspace and its computer. The key and the id of a row depend only on the stream,
// the version and the time of its event, so rows of different streams do not collide and a repeated write changes nothing.
package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// List is the name of the list.
	List = "audit"
	// SystemActor is the actor of changes that no person made.
	SystemActor = "system"
	// Prefix begins an audit event's id; a lower-case ULID follows.
	Prefix = "aud_"
)

// NewEvent returns an audit event for a change made by the call. NewRow sets its id. The actor of the provenance is the operator who
// impersonated the person, or the credential with grants that the person used (Credential).
func NewEvent(call entity.Call, name string, provenance *auditv1.Provenance) *auditv1.Event {
	if by := cmp.Or(call.Principal.GetImpersonatorId(), Credential(call.Principal)); by != "" {
		provenance = cloneOrEmpty(provenance)
		provenance.Actor = by
	}
	return &auditv1.Event{Event: name, ActorId: Actor(call.Principal), At: call.At(), Provenance: provenance}
}

// Actor returns the id of the user that a principal acts for, or SystemActor.
func Actor(p *wirev1.Principal) string {
	if p.GetUserId() == "" {
		return SystemActor
	}
	return p.GetUserId()
}

// Credential returns the credential with grants that a person made a change with: an OAuth grant, an app, an agent or a limited key, as
// the actor of file activity. It is "" for a credential that is the person's own identity, and for principals without a person.
func Credential(p *wirev1.Principal) string {
	if !entity.HasGrants(p) {
		return ""
	}
	return entity.Actor(p)
}

// NewRow returns the list row of an audit event. kind is the kind of the entity that decided the change, and index the
// position of the change among the events of the decision.
func NewRow(kind string, call entity.Call, index int, e *auditv1.Event) entity.Row {
	row, version := proto.CloneOf(e), call.Version+uint64(index)
	row.Id = ID(kind+"/"+call.Identity, version, row.GetAt())
	return entity.Row{
		List:    List,
		Key:     entity.DescendingKey(uint64(row.GetAt())) + entity.DescendingKey(version) + kind,
		Message: row,
	}
}

// ID returns the id of the audit event for the event with a version in a stream: a ULID of the event's time, at, in
// milliseconds since the Unix epoch, and of 80 bits of a hash of stream and version.
func ID(stream string, version uint64, at int64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(stream), version))
	high := uint64(at)<<16 | uint64(binary.BigEndian.Uint16(sum[:2]))
	return Prefix + encodeULID(high, binary.BigEndian.Uint64(sum[2:10]))
}

// encodeULID encodes 128 bits as 26 digits. The first digit holds three bits (github.com/ulid/spec).
func encodeULID(high, low uint64) string {
	var text [entity.ULIDLength]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = entity.ULIDDigits[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return string(text[:])
}

func cloneOrEmpty(p *auditv1.Provenance) *auditv1.Provenance {
	if p == nil {
		return &auditv1.Provenance{}
	}
	return proto.CloneOf(p)
}
