package persistence

import "container/list"

type streamKey struct {
	partition Partition
	stream    Stream
}

// head is what the applier knows of a stream.
type head struct {
	key streamKey
	// version and revision are those of the stream.
	version, revision uint64
	// events is the prefix of the stream's event keys.
	events []byte
	// dirty tells that the batch being applied has moved version, and that its row is still to be written.
	dirty bool
}

// heads keeps the streams used last. It must hold more streams than a batch can touch: a batch relies on finding here
// what it has itself moved, before that can be read from the store.
type heads struct {
	limit int
	known map[streamKey]*list.Element
	order list.List
}

func newHeads(limit int) *heads {
	return &heads{limit: max(limit, 2*maxBatchProposals), known: make(map[streamKey]*list.Element)}
}

func (h *heads) find(k streamKey) *head {
	e, ok := h.known[k]
	if !ok {
		return nil
	}
	h.order.MoveToFront(e)
	return e.Value.(*head)
}

func (h *heads) add(k streamKey, version, revision uint64) *head {
	if h.order.Len() >= h.limit {
		oldest := h.order.Back()
		delete(h.known, oldest.Value.(*head).key)
		h.order.Remove(oldest)
	}
	n := &head{key: k, version: version, revision: revision, events: appendEventPrefix(nil, k.partition, k.stream)}
	h.known[k] = h.order.PushFront(n)
	return n
}

// forget drops the heads of a partition.
func (h *heads) forget(p Partition) {
	for e := h.order.Front(); e != nil; {
		next := e.Next()
		if k := e.Value.(*head).key; k.partition == p {
			delete(h.known, k)
			h.order.Remove(e)
		}
		e = next
	}
}
