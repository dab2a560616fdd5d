package bench

import (
	"cmp"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	entitycomputer "github.com/atelier-run/atelier/entity/computer"
)

// A wish is a request to a child that runs a member.
type wish struct {
	// Start is the data directory to start a node over.
	Start string
	// SampleEvery is the interval between samples of running computers for Start; 0: the default.
	SampleEvery time.Duration
	// Events is the number of events to record.
	Events int
	// Use is the number of workspaces to activate. Quiet then waits until all idle computers have been checked, and Rounds is
	// the number of sampling rounds to observe.
	Use    int
	Quiet  bool
	Rounds int
	Stop   bool
}

// A state is the answer of a child that runs a member.
type state struct {
	Address, Key, Slug string
	// Took is the duration of the start.
	Took time.Duration
	// Resident is the memory of the process, in bytes, after a garbage collection.
	Resident int64
	// Descriptors is the number of open files and sockets of the process.
	Descriptors int
	// Processor is the processor time of the observed rounds, and Samples the number of samples in them.
	Processor time.Duration
	Samples   int
	Failed    string
}

// A Child is a member in a process of its own.
type Child struct {
	b      testing.TB
	wishes *gob.Encoder
	states *gob.Decoder
	stop   func() error
}

// NewChild starts the process. The member starts with a wish.
func NewChild(b testing.TB) *Child {
	in, out, wait := startChild(b, "member")
	return &Child{b: b, wishes: gob.NewEncoder(in), states: gob.NewDecoder(out), stop: func() error {
		in.Close()
		return wait()
	}}
}

func (c *Child) ask(w wish) state {
	if err := c.wishes.Encode(w); err != nil {
		c.b.Fatal(err)
	}
	var s state
	if err := c.states.Decode(&s); err != nil {
		c.b.Fatal(err)
	}
	if s.Failed != "" {
		c.b.Fatal(s.Failed)
	}
	return s
}

// serveMember is the main loop of the child: it answers wishes until in ends.
func serveMember(in io.Reader, out io.Writer) error {
	wishes, states := gob.NewDecoder(in), gob.NewEncoder(out)
	var m *Member
	operations := NewOperations(1, 10_000, false)
	for {
		var w wish
		if err := wishes.Decode(&w); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if m != nil {
				err = errors.Join(err, m.Stop())
			}
			return err
		}
		s, err := grant(&m, w, operations)
		if err != nil {
			s.Failed = err.Error()
		}
		if err := states.Encode(s); err != nil {
			return err
		}
	}
}

func grant(m **Member, w wish, operations *Operations) (s state, err error) {
	began := time.Now()
	if w.Start != "" {
		if *m, err = startSampling(w.Start, cmp.Or(w.SampleEvery, entitycomputer.SampleEvery)); err != nil {
			return s, err
		}
		s = state{Address: (*m).Address, Key: (*m).Key, Slug: (*m).Slug, Took: time.Since(began)}
	}
	for left := w.Events; left > 0 && err == nil; left -= 1000 {
		err = (*m).Record(operations.Take(min(left, 1000))...)
	}
	if w.Use > 0 && err == nil {
		err = (*m).use(0, w.Use)
	}
	if w.Quiet && err == nil {
		err = (*m).quiet()
	}
	if w.Rounds > 0 && err == nil {
		s.Processor, s.Samples, err = (*m).observe(w.Rounds)
	}
	runtime.GC()
	debug.FreeOSMemory()
	if s.Resident = resident(); s.Resident == 0 {
		err = errors.Join(err, errors.New("the process's memory cannot be read"))
	}
	s.Descriptors = descriptors()
	return s, err
}

// descriptors returns the number of open files of this process; 0: unknown.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}

// resident returns the memory of this process in bytes; 0: unknown.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// kernelTCP returns the memory of all TCP sockets of the machine in bytes; 0: unknown.
func kernelTCP() int64 {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "TCP:")
	_, rest, _ = strings.Cut(rest, "mem ")
	number, _, _ := strings.Cut(rest, "\n")
	pages, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
