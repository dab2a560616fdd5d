package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// BenchmarkPage requests pages of a hundred rows over sixteen connections. The variants memory and hello answer with the bytes
// of one such page and with five bytes, from net/http without the product.
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

// pages returns requests for pages at n positions, evenly distributed.
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

// manyReads is the number of reads of one author on the path with the long history.
const manyReads = 100_000

// BenchmarkSeenBy requests the seen-by page of a path with manyReads reads of one author, and of a path with one read, in
// turns. appends/read is the number of proposals in the journal for each of the reads.
func BenchmarkSeenBy(b *testing.B) {
	a := newActivityActors(b, 1)
	read := func(path string) error {
		op := &activityv1.Operation{Kind: activityv1.Kind_KIND_READ, Path: path, Author: author(1)}
		_, err := a.router.Ask(context.Background(), record(a.workspaces[0], op))
		return err
	}
	if err := read("fresh.md"); err != nil {
		b.Fatal(err)
	}
	before := a.journal.appended.Load()
	var left atomic.Int64
	left.Store(manyReads)
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for left.Add(-1) >= 0 {
				if err := read("often.md"); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	readers.Wait()
	appends := float64(a.journal.appended.Load()-before) / manyReads
	variants := []Variant{
		{"often", a.seenBy("often.md", manyReads)},
		{"fresh", a.seenBy("fresh.md", 1)},
	}
	Rounds(b, time.Second, variants...).Report(b, "page", variants...)
	b.ReportMetric(appends, "appends/read")
}

// seenBy requests the page of a path, one request at a time, and expects one reader with a number of reads.
func (a *activityActors) seenBy(path string, reads uint64) func(time.Duration) (float64, time.Duration) {
	return func(d time.Duration) (pages float64, took time.Duration) {
		began := time.Now()
		for ; time.Since(began) < d; pages++ {
			reply, err := a.router.Ask(context.Background(), entity.Command{
				Kind: entity.KindActivity, Identity: a.workspaces[0], Principal: entity.Platform(),
				Message: &activityv1.ReadSeenBy{Path: path, Limit: 100},
			})
			if err != nil {
				a.b.Fatal(err)
			}
			readers := reply.(*activityv1.SeenBy).GetReaders()
			if len(readers) != 1 || readers[0].GetReadCount() != reads {
				a.b.Fatalf("%s was seen by %v, not by one author %d times", path, readers, reads)
			}
		}
		return pages, time.Since(began)
	}
}
