package journaltest

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/persistence"
)

// model is a journal without an index or a cache: it stores everything in maps.
type model struct {
	streams map[modelKey][]string
	feeds   map[persistence.Partition][]feedText
	entries map[modelKey]map[entryKey]string
	// versions and sequences are the versions and sequences of the last events, which may be erased.
	versions  map[modelKey]uint64
	sequences map[persistence.Partition]int
}

// feedText is an event of a stream in a feed.
type feedText struct {
	stream persistence.Stream
	text   string
}

type modelKey struct {
	partition persistence.Partition
	name      string
}

type entryKey struct {
	value string
	order uint64
}

func newModel() *model {
	return &model{
		streams:   make(map[modelKey][]string),
		feeds:     make(map[persistence.Partition][]feedText),
		entries:   make(map[modelKey]map[entryKey]string),
		versions:  make(map[modelKey]uint64),
		sequences: make(map[persistence.Partition]int),
	}
}

func (m *model) clone() *model {
	c := newModel()
	maps.Copy(c.versions, m.versions)
	maps.Copy(c.sequences, m.sequences)
	for k, v := range m.streams {
		c.streams[k] = slices.Clone(v)
	}
	for k, v := range m.feeds {
		c.feeds[k] = slices.Clone(v)
	}
	for k, v := range m.entries {
		c.entries[k] = maps.Clone(v)
	}
	return c
}

// apply applies a proposal, and returns its expected result.
func (m *model) apply(p persistence.Proposal, epoch uint64) string {
	at := modelKey{p.Partition, string(p.Stream)}
	version := m.versions[at]
	if p.Epoch != epoch {
		return fmt.Sprintf("epoch %d", epoch)
	}
	if p.Expected != version {
		return fmt.Sprintf("conflict %d", version)
	}
	if p.Erase {
		delete(m.streams, at)
		m.feeds[p.Partition] = slices.DeleteFunc(slices.Clone(m.feeds[p.Partition]), func(f feedText) bool { return f.stream == p.Stream })
	}
	for _, e := range p.Events {
		version++
		m.sequences[p.Partition]++
		text := fmt.Sprintf("%s/%d#%d %s", p.Stream, version, m.sequences[p.Partition], e.Name)
		m.streams[at] = append(m.streams[at], text)
		m.feeds[p.Partition] = append(m.feeds[p.Partition], feedText{p.Stream, text})
	}
	m.versions[at] = version
	for _, c := range p.Entries {
		in := modelKey{p.Partition, c.Index}
		if m.entries[in] == nil {
			m.entries[in] = make(map[entryKey]string)
		}
		delete(m.entries[in], entryKey{c.Value, c.Order})
		if !c.Remove {
			m.entries[in][entryKey{c.Value, c.Order}] = string(c.Data)
		}
	}
	return fmt.Sprintf("version %d", version)
}

// resultText returns a result in the form of model.apply.
func resultText(r persistence.Result) string {
	var conflict *persistence.ConflictError
	var stale *persistence.NotLeaderError
	switch {
	case errors.As(r.Err, &conflict):
		return fmt.Sprintf("conflict %d", conflict.Actual)
	case errors.As(r.Err, &stale):
		return fmt.Sprintf("epoch %d", stale.Epoch)
	case r.Err != nil:
		return r.Err.Error()
	}
	return fmt.Sprintf("version %d", r.Version)
}

var (
	modelStreams = []string{"a", "a\x00", "b"}
	modelIndexes = []string{"i", "i\x01"}
	modelValues  = []string{"", "v", "v\x00w", "v\xff"}
)

// dump returns the content of the model in the order in which a journal yields it.
func (m *model) dump() string {
	var out strings.Builder
	for p := range persistence.Partition(2) {
		feed := make([]string, len(m.feeds[p]))
		for i, f := range m.feeds[p] {
			feed[i] = f.text
		}
		fmt.Fprintf(&out, "feed %d %q\n", p, feed)
		for _, s := range modelStreams {
			fmt.Fprintf(&out, "stream %d %q %d %q\n", p, s, m.versions[modelKey{p, s}], m.streams[modelKey{p, s}])
		}
		for _, index := range modelIndexes {
			entries := m.entries[modelKey{p, index}]
			keys := slices.SortedFunc(maps.Keys(entries), func(a, b entryKey) int {
				if a.value != b.value {
					return strings.Compare(a.value, b.value)
				}
				return int(a.order) - int(b.order)
			})
			var texts []string
			for _, k := range keys {
				texts = append(texts, fmt.Sprintf("%s/%d %s", k.value, k.order, entries[k]))
			}
			fmt.Fprintf(&out, "index %d %q %q\n", p, index, texts)
		}
	}
	return out.String()
}

// dump returns the content of the journal, and checks that ascending and descending iterations agree.
func (c *client) dump() string {
	var out strings.Builder
	c.withView(func(v persistence.View) {
		for p := range persistence.Partition(2) {
			fmt.Fprintf(&out, "feed %d %q\n", p, eventTexts(c.t, v.Feed(p, 0, nil)))
			for _, name := range modelStreams {
				s := persistence.Stream(name)
				up := eventTexts(c.t, v.Read(p, s, 0, persistence.Ascending))
				down := eventTexts(c.t, v.Read(p, s, ^uint64(0), persistence.Descending))
				slices.Reverse(down)
				expectTexts(c.t, "down", down, up...)
				fmt.Fprintf(&out, "stream %d %q %d %q\n", p, name, head(c.t, v, p, s), up)
			}
			for _, index := range modelIndexes {
				query := persistence.Query{Index: index, Prefix: true}
				up := entryTexts(c.t, v, p, query)
				query.Direction = persistence.Descending
				down := entryTexts(c.t, v, p, query)
				slices.Reverse(down)
				expectTexts(c.t, "down", down, up...)
				fmt.Fprintf(&out, "index %d %q %q\n", p, index, up)
			}
		}
	})
	return out.String()
}

// modelTest compares a journal with its model.
type modelTest struct {
	harness  Harness
	client   *client
	model    *model
	lastName int
}

// modelChecks is the number of random histories, of about thirty steps each, unless -rapid.checks is set. It is low
// because each history opens the journal many times: together they take a minute with the race detector.
const modelChecks = "25"

// testModel appends at random, closes and crashes the journal, and compares it with the model.
func testModel(t *testing.T, make func(t *testing.T) Harness) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(modelChecks)
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := &modelTest{harness: make(t), model: newModel()}
		s.client = openClient(t, s.harness)
		rt.Repeat(map[string]func(*rapid.T){
			"append": s.append,
			"reopen": s.reopen,
			"crash":  s.crash,
			"":       s.check,
		})
		s.client.mustClose()
	})
}

func (s *modelTest) check(rt *rapid.T) {
	if got, want := s.client.dump(), s.model.dump(); got != want {
		rt.Fatalf("the journal has\n%s\nthe model has\n%s", got, want)
	}
}

func (s *modelTest) reopen(*rapid.T) {
	s.client.mustClose()
	s.client = openClient(s.client.t, s.harness)
}

func (s *modelTest) append(rt *rapid.T) {
	proposals := s.drawProposals(rt, s.model.clone())
	for i, r := range s.client.appendAll(proposals...) {
		p := proposals[i]
		if got, want := resultText(r), s.model.apply(p, s.client.epochs[p.Partition]); got != want {
			rt.Fatalf("proposal %d of %q: %s, want %s", i, p.Stream, got, want)
		}
	}
}

// crash loses power while proposals are in flight. Each partition must then be in the state after a prefix of its
// proposals, which includes all acknowledged ones.
func (s *modelTest) crash(rt *rapid.T) {
	proposals := s.drawProposals(rt, s.model.clone())
	var acknowledged [2]atomic.Int64
	var done sync.WaitGroup
	done.Add(len(proposals))
	for _, p := range proposals {
		s.client.Append(p, func(r persistence.Result) {
			acknowledged[p.Partition].Add(1)
			done.Done()
		})
	}
	if wait := rapid.Bool().Draw(rt, "wait"); wait {
		done.Wait()
	}
	least := [2]int64{acknowledged[0].Load(), acknowledged[1].Load()}
	s.harness.Crash()
	done.Wait()
	epochs := s.client.epochs
	s.client = openClient(s.client.t, s.harness)
	got := s.client.dump()
	var of [2][]persistence.Proposal
	for _, p := range proposals {
		of[p.Partition] = append(of[p.Partition], p)
	}
	for first := int(least[0]); first <= len(of[0]); first++ {
		for second := int(least[1]); second <= len(of[1]); second++ {
			left := s.model.clone()
			for _, p := range slices.Concat(of[0][:first], of[1][:second]) {
				left.apply(p, epochs[p.Partition])
			}
			if left.dump() == got {
				s.model = left
				return
			}
		}
	}
	rt.Fatalf("%d of %d were acknowledged; the journal has\n%s\nbefore them it had\n%s", least, len(proposals), got, s.model.dump())
}

// drawProposals returns proposals. Most of them are valid if they are applied in order. It applies them to then.
func (s *modelTest) drawProposals(rt *rapid.T, then *model) []persistence.Proposal {
	proposals := make([]persistence.Proposal, rapid.IntRange(1, 6).Draw(rt, "proposals"))
	for i := range proposals {
		p := &proposals[i]
		p.Partition = persistence.Partition(rapid.IntRange(0, 1).Draw(rt, "partition"))
		p.Stream = persistence.Stream(rapid.SampledFrom(modelStreams).Draw(rt, "stream"))
		p.Epoch = s.client.epochs[p.Partition] - rapid.SampledFrom([]uint64{0, 0, 0, 0, 1}).Draw(rt, "behind")
		p.Expected = then.versions[modelKey{p.Partition, string(p.Stream)}] + rapid.SampledFrom([]uint64{0, 0, 0, 0, 1}).Draw(rt, "ahead")
		p.Erase = rapid.IntRange(0, 5).Draw(rt, "erase") == 0
		for range rapid.IntRange(0, 3).Draw(rt, "events") {
			s.lastName++
			p.Events = append(p.Events, event(fmt.Sprint("e", s.lastName)))
		}
		for range rapid.IntRange(0, 3).Draw(rt, "changes") {
			s.lastName++
			p.Entries = append(p.Entries, drawChange(rt, fmt.Sprint("d", s.lastName)))
		}
		then.apply(*p, s.client.epochs[p.Partition])
	}
	return proposals
}

func drawChange(rt *rapid.T, data string) persistence.Change {
	return persistence.Change{
		Entry: persistence.Entry{
			Index: rapid.SampledFrom(modelIndexes).Draw(rt, "index"),
			Value: rapid.SampledFrom(modelValues).Draw(rt, "value"),
			Order: uint64(rapid.IntRange(0, 2).Draw(rt, "order")),
			Data:  []byte(data),
		},
		Remove: rapid.Bool().Draw(rt, "remove"),
	}
}
