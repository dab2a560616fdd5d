package entity

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"
)

// Need is what is asked of a caller in a workspace.
type Need struct {
	// Any of these capabilities; none: to belong to the workspace.
	Any []string
	// Changes tells that something is to be changed: by nobody who may only read, and not while the workspace is
	// suspended.
	Changes bool
}

// Reads is the need of who only reads.
func Reads(any ...string) Need { return Need{Any: any} }

// Changes is the need of who changes something.
func Changes(any ...string) Need { return Need{Any: any, Changes: true} }

// Row is an entry of one of an entity's lists: put beside the events that it follows from, in one batch with them. Rows
// of one workspace or person and list are walked in the order of their keys.
type Row struct {
	List string
	Key  string
	// Message is the entry; nil removes it.
	Message proto.Message
}

// Ascending is a key that orders by a number, lowest first; Descending highest first.
func Ascending(n uint64) string  { return string(binary.BigEndian.AppendUint64(nil, n)) }
func Descending(n uint64) string { return Ascending(^n) }
