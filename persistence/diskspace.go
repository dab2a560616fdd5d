package persistence

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

var errDiskFull = fmt.Errorf("%w: the disk is nearly full", ErrRefused)

// A diskState is the least urgency of the proposals that the disk has space for.
type diskState int32

const (
	spacious   = diskState(Ordinary)
	nearlyFull = diskState(Rationed)
	scarce     = diskState(Essential)
	full       = scarce + 1 // for no proposal
)

// diskSpace decides which proposals are refused because the disk is nearly full, so that Pebble has the space that flushes and
// compactions need. It measures the free space at intervals, and after many bytes were written.
type diskSpace struct {
	reserve *reserve
	dir     string
	// minBytes and minFiles are the free bytes and inodes below which proposals are refused.
	minBytes, minFiles uint64
	interval           time.Duration
	logger             *slog.Logger

	// measured is the time of the last measurement, written the bytes of the commits since then.
	measured time.Time
	written  int
	state    atomic.Int32
}

const diskSpaceInterval = time.Second

// admits reports whether the disk has space for a proposal.
func (s diskState) admits(p *Proposal) bool { return diskState(p.Urgency) >= s }

// check returns which proposals the disk has space for, if a commit of this size is next. It refills the reserve.
func (s *diskSpace) check(bytes int) diskState {
	now := time.Now()
	s.written += bytes
	if now.Sub(s.measured) >= s.interval || uint64(s.written) > s.minBytes/8 {
		s.measured, s.written = now, bytes
		s.reserve.refill()
		state := s.measure()
		switch before := diskState(s.state.Swap(int32(state))); {
		case before == spacious && state != spacious:
			s.logger.Error("the disk is nearly full: only deletions, operators and a number of sign-ins may change something until there is space again",
				slog.String("dir", s.dir))
		case before != spacious && state == spacious:
			s.logger.Info("the disk has space again", slog.String("dir", s.dir))
		}
	}
	return diskState(s.state.Load())
}

// measure returns the state of the disk. Space that cannot be measured is taken as unlimited.
func (s *diskSpace) measure() diskState {
	usage, err := s.reserve.GetDiskUsage(s.dir)
	left := s.reserve.left.Load()
	switch {
	case (err != nil || usage.AvailBytes >= s.minBytes) && s.reserve.freeFiles() >= s.minFiles:
		return spacious // a reserve that lacks files is refilled, unless making them fails
	case left < lastReserve:
		return full
	case left < rationReserve:
		return scarce
	}
	return nearlyFull
}
