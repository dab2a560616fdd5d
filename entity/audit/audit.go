// Package audit makes the rows of a workspace's audit log, the list "audit", newest first.
//
// A change leaves its row in the batch of its own event: whoever's rules make the event give the row with it. Streams of
// several kinds write to one workspace's log (the workspace itself, its computer); a row's key and id come from the
// stream and the version of the event alone, so that no two rows collide and a row written again is the same.
package audit

import (
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
	// System is the actor of what no person did.
	System = "system"
	// Prefix begins an audit event's id; a lower-case ULID follows.
	Prefix = "aud_"
)

// Event is what the log says of a change that the call makes. Its id comes with its row.
func Event(call entity.Call, name string, provenance *auditv1.Provenance) *auditv1.Event {
	if impersonator := call.Principal.GetImpersonatorId(); impersonator != "" {
		provenance = clone(provenance)
		provenance.Actor = impersonator
	}
	return &auditv1.Event{Event: name, ActorId: Actor(call.Principal), At: call.At(), Provenance: provenance}
}

// Actor is the person that a principal acts for, or the system.
func Actor(p *wirev1.Principal) string {
	if p.GetUserId() == "" {
		return System
	}
	return p.GetUserId()
}

// Row is the entry for the event at an index among those that a command came to, in the stream of a kind.
func Row(kind string, call entity.Call, index int, e *auditv1.Event) entity.Row {
	row, version := proto.CloneOf(e), call.Version+uint64(index)
	row.Id = ID(kind+"/"+call.Identity, version, row.GetAt())
	return entity.Row{
		List:    List,
		Key:     entity.Descending(uint64(row.GetAt())) + entity.Descending(version) + kind,
		Message: row,
	}
}

// ID is an audit event's: a ULID whose time is the event's and whose other 80 bits stand for its place in the journal.
func ID(stream string, version uint64, at int64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(stream), version))
	high := uint64(at)<<16 | uint64(binary.BigEndian.Uint16(sum[:2]))
	return Prefix + ulid(high, binary.BigEndian.Uint64(sum[2:10]))
}

// ulid writes 128 bits as 26 digits, the first of which holds but three of them (github.com/ulid/spec).
func ulid(high, low uint64) string {
	var text [entity.ULIDLength]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = entity.ULIDDigits[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return string(text[:])
}

func clone(p *auditv1.Provenance) *auditv1.Provenance {
	if p == nil {
		return &auditv1.Provenance{}
	}
	return proto.CloneOf(p)
}
