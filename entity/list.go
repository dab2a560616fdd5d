package entity

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"
)

// Row is an entry of one of an entity's lists: put beside the events that it follows from, in one batch with them. Rows
// of one workspace or person and list are walked in the order of their keys.
type Row struct {
	List string
	Key  string
	// Message is the entry; nil removes it.
	Message proto.Message
}

// ListIndex returns the name of the journal's index that holds the rows of a list.
func ListIndex(list string) string { return "list." + list }

// Ascending is a key that orders by a number, lowest first; Descending highest first.
func Ascending(n uint64) string  { return string(binary.BigEndian.AppendUint64(nil, n)) }
func Descending(n uint64) string { return Ascending(^n) }
