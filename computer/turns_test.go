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

// A countingShare is a share of many computers, some of them running, and their driver. It counts the computers that are
// read and sampled.
type countingShare struct {
	computer.Driver
	all     []*computerv1.Present
	running []string

	mu sync.Mutex
	// sampled counts the samples by workspace, read the computers that Present and Find have returned.
	sampled map[string]int
	read    int
}

func newCountingShare(all, running int) *countingShare {
	s := &countingShare{sampled: map[string]int{}}
	for i := range all {
		s.all = append(s.all, &computerv1.Present{WorkspaceId: fmt.Sprintf("ws_%06d", i)})
	}
	for _, p := range s.all[all-running:] {
		s.running = append(s.running, p.GetWorkspaceId())
	}
	return s
}

func (s *countingShare) Running() []string { return s.running }

func (s *countingShare) Present(after string, limit int) ([]*computerv1.Present, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var page []*computerv1.Present
	for _, p := range s.all {
		if p.GetWorkspaceId() > after && len(page) < limit {
			page = append(page, p)
		}
	}
	s.read += len(page)
	return page, nil
}

func (s *countingShare) Occupied(string, int) ([]string, error)          { return nil, nil }
func (s *countingShare) Processes(string) ([]*computerv1.Process, error) { return nil, nil }

func (s *countingShare) Find(id string) (*computerv1.Present, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	return &computerv1.Present{WorkspaceId: id}, nil
}

func (s *countingShare) Schedules(string, int) ([]*computerv1.ScheduleRow, error) { return nil, nil }

func (s *countingShare) Schedule(string) (*computerv1.ScheduleRow, error) { return nil, nil }

func (s *countingShare) Sample(_ context.Context, id string) (*computerv1.Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sampled[id]++
	return &computerv1.Sample{}, nil
}

// since returns the counts since its last call.
func (s *countingShare) since() (read int, sampled map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read, sampled = s.read, s.sampled
	s.read, s.sampled = 0, map[string]int{}
	return read, sampled
}

// follow starts a fleet that samples the share.
func (s *countingShare) follow(t *testing.T) {
	f := computer.New(computer.Options{
		Driver: s, Log: slog.New(slog.DiscardHandler), Put: func(context.Context, string, entity.Row) error { return nil },
	})
	go f.Follow(t.Context(), s)
}

// TestSamplesAreStaggered verifies that each running computer is sampled once in 15 seconds, and that the samples are
// spread over that time.
func TestSamplesAreStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const computers = 500
		s := newCountingShare(computers, computers)
		s.follow(t)
		time.Sleep(5 * time.Minute) // the pages of all computers have been checked
		synctest.Wait()
		s.since()
		sampled := map[string]int{}
		for range 5 {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			_, turn := s.since()
			if len(turn) < computers/10 || len(turn) > computers*3/10 {
				t.Errorf("%d of %d computers were sampled in one of five turns", len(turn), computers)
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

// TestSamplingCostDependsOnRunningComputers verifies that a turn reads at most one page of other computers, and none after all
// have been checked.
func TestSamplingCostDependsOnRunningComputers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingShare(3_000, 20)
		s.follow(t)
		for range 20 {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if read, _ := s.since(); read > 64+20 {
				t.Fatalf("%d computers were read in one turn, want at most 84", read)
			}
		}
		time.Sleep(3 * time.Minute) // all have been checked
		synctest.Wait()
		s.since()
		time.Sleep(time.Minute)
		synctest.Wait()
		if read, sampled := s.since(); read != 4*20 || len(sampled) != 20 {
			t.Errorf("in a minute %d computers were read and %d sampled, with 20 running", read, len(sampled))
		}
	})
}
