package bench

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
)

const million = 1_000_000

// BenchmarkReplay sends a million events from the beginning to one client. memory sends as many frames of the same size
// from memory, 64 KB a write.
func BenchmarkReplay(b *testing.B) {
	m, readers := NewMember(b, Filled(b, million)), NewReaders(b)
	m.find(b)
	memory := serveRaw(b, http.HandlerFunc(replayMemory))
	replay := func(address string, request []byte) func(time.Duration) (float64, time.Duration) {
		return func(time.Duration) (float64, time.Duration) {
			began := time.Now()
			c := readers.Open(Group{Address: address, Connections: 1, Requests: [][]byte{request}})
			c.Await(million)
			took := time.Since(began)
			c.Close()
			return million, took
		}
	}
	variants := []Variant{
		{"atelier", replay(m.Address, m.Request("/events"))}, {"memory", replay(memory, rawRequest)},
	}
	Rounds(b, 0, variants...).Report(b, "event", variants...)
}

func replayMemory(w http.ResponseWriter, _ *http.Request) {
	cursor := activity.NewCursor(make([]byte, 32), rawWorkspace)
	operations := NewOperations(1, 10_000, false)
	var block []byte
	rows := 0
	for ; len(block) < 64<<10; rows++ {
		row := activity.Row{Seq: million / 2, At: time.Now().UnixMilli(), Operation: operations.Next()}
		block = activity.AppendFrame(block, cursor, row.Seq, activity.Encode(row))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	for left := million; left > 0; left -= rows {
		if left < rows {
			end := block
			for range rows - left {
				end = end[:bytes.LastIndex(end[:len(end)-2], []byte("\n\n"))+2]
			}
			block = end
		}
		if _, err := w.Write(block); err != nil {
			return
		}
		flusher.Flush()
	}
}
