package bench

import (
	"net/http"
	"testing"
)

// idleRequests returns the memory of a request of net/http that waits for the end of its connection.
func idleRequests(b *testing.B) float64 {
	readers := NewReaders(b)
	before := settledMemory()
	address := serveRaw(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	c := readers.Open(Group{Address: address, Connections: waits / 2, Manner: Ignore, Requests: [][]byte{rawRequest}})
	defer c.Close()
	return float64(settledMemory()-before) / (waits / 2)
}
