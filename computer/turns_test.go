package computer_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// hall is a share of many computers, some of which run. It counts what sampling them takes.
type hall struct {
	computer.Driver
	all     []*computerv1.Present
	running []string

	mu sync.Mutex
	// sampled counts the samples by workspace, read the computers that were looked up.
	sampled map[string]int
	read    int
}

func newHall(all, running int) *hall {
	h := &hall{sampled: map[string]int{}}
	for i := range all {
		h.all = append(h.all, &computerv1.Present{WorkspaceId: fmt.Sprintf("ws_%06d", i)})
	}
	for _, p := range h.all[all-running:] {
		h.running = append(h.running, p.GetWorkspaceId())
	}
	return h
}

func (h *hall) Running() []string { return h.running }

func (h *hall) Present(after string, limit int) ([]*computerv1.Present, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var page []*computerv1.Present
	for _, p := range h.all {
		if p.GetWorkspaceId() > after && len(page) < limit {
			page = append(page, p)
		}
	}
	h.read += len(page)
	return page, nil
}

func (h *hall) Find(id string) (*computerv1.Present, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read++
	return &computerv1.Present{WorkspaceId: id}, nil
}

func (h *hall) Sample(_ context.Context, id string) (*computerv1.Sample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sampled[id]++
	return &computerv1.Sample{}, nil
}

// since returns what was read and sampled since the last call.
func (h *hall) since() (read int, sampled map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	read, sampled = h.read, h.sampled
	h.read, h.sampled = 0, map[string]int{}
	return read, sampled
}

func (h *hall) follow(t *testing.T) {
	f := computer.New(computer.Options{
		Driver: h, Log: slog.New(slog.DiscardHandler), Put: func(context.Context, string, entity.Row) error { return nil },
	})
	go f.Follow(t.Context(), h)
}

// Each running computer is sampled once in 15 seconds, and they are spread over that time.
func TestSamplesAreStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const computers = 500
		h := newHall(computers, computers)
		h.follow(t)
		time.Sleep(5 * time.Minute) // the pages of all computers have been checked
		synctest.Wait()
		h.since()
		sampled := map[string]int{}
		for range 5 {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			_, turn := h.since()
			if len(turn) < computers/10 || len(turn) > computers*3/10 {
				t.Errorf("%d of %d computers were sampled in a fifth of the time", len(turn), computers)
			}
			for id, n := range turn {
				sampled[id] += n
			}
		}
		for id, n := range sampled {
			if n != 1 {
				t.Errorf("%s was sampled %d times", id, n)
			}
		}
		if len(sampled) != computers {
			t.Errorf("%d of %d computers were sampled", len(sampled), computers)
		}
	})
}

// What samples cost depends on the computers that run: of the others a page at the most is looked at in each turn, and none
// once all have been.
func TestSamplesOfManyComputers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(3_000, 20)
		h.follow(t)
		for range 20 {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if read, _ := h.since(); read > 64+20 {
				t.Fatalf("%d computers are read in one turn", read)
			}
		}
		time.Sleep(3 * time.Minute) // all have been checked
		synctest.Wait()
		h.since()
		time.Sleep(time.Minute)
		synctest.Wait()
		if read, sampled := h.since(); read != 4*20 || len(sampled) != 20 {
			t.Errorf("in a minute %d computers were read and %d sampled, with 20 running", read, len(sampled))
		}
	})
}
