package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// BenchmarkPage asks for pages of a hundred rows over sixteen connections. memory answers with the bytes of one such
// page, hello with five; both over net/http alone.
func BenchmarkPage(b *testing.B) {
	m, readers := NewMember(b, Filled(b, million)), NewReaders(b)
	m.find(b)
	requests := m.pages(b, 64)
	page := fetch(b, m.Address, requests[0])
	query := func(address string, requests [][]byte) func(time.Duration) (float64, time.Duration) {
		c := readers.Open(Group{Address: address, Connections: 16, Manner: Query, Requests: requests})
		return c.Query
	}
	variants := []Variant{
		{"atelier", query(m.Address, requests)},
		{"memory", query(serveRaw(b, constant(page)), [][]byte{rawRequest})},
		{"hello", query(serveRaw(b, constant([]byte("hello"))), [][]byte{rawRequest})},
	}
	Rounds(b, time.Second, variants...).Report(b, "request", variants...)
}

func constant(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	})
}

// pages are requests for pages at n places, evenly spread.
func (m *Member) pages(b testing.TB, n int) [][]byte {
	cursor := m.cursor()
	var requests [][]byte
	for i := range n {
		at := cursor.Append(nil, uint64(1+i*(million-1000)/n))
		requests = append(requests, m.Request(fmt.Sprintf("/feed?limit=100&cursor=%s", at)))
	}
	return requests
}

func fetch(b testing.TB, address string, request []byte) []byte {
	head, _, _ := bytes.Cut(request, []byte("\r\n"))
	r, err := http.NewRequest(http.MethodGet, "http://"+address+string(bytes.Fields(head)[1]), nil)
	if err != nil {
		b.Fatal(err)
	}
	_, key, _ := bytes.Cut(request, []byte("Authorization: "))
	key, _, _ = bytes.Cut(key, []byte("\r\n"))
	r.Header.Set("Authorization", string(key))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status, err, string(body))
	}
	return body
}
