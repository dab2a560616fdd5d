package journaltest

import (
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

func putEntry(index, value string, order uint64, data string) persistence.Change {
	return persistence.Change{Entry: persistence.Entry{Index: index, Value: value, Order: order, Data: []byte(data)}}
}

func deleteEntry(index, value string, order uint64) persistence.Change {
	return persistence.Change{Entry: persistence.Entry{Index: index, Value: value, Order: order}, Remove: true}
}

// entriesProposal returns a proposal that changes entries only.
func (c *client) entriesProposal(p persistence.Partition, changes ...persistence.Change) persistence.Proposal {
	proposed := c.proposal(p, "indexed", 0)
	proposed.Entries = changes
	return proposed
}

func testIndexChanges(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	all := persistence.Query{Index: "i", Prefix: true}
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a", 1, "first"), putEntry("i", "a", 2, "second"), putEntry("other", "a", 1, "other")))
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a", 1, "replaced"), deleteEntry("i", "a", 2), deleteEntry("i", "never", 1)))
	// Within one proposal, and within one batch, the last change of an entry wins.
	c.mustAppend(
		c.entriesProposal(0, putEntry("i", "b", 1, "x"), deleteEntry("i", "b", 1)),
		c.entriesProposal(0, deleteEntry("i", "c", 1), putEntry("i", "c", 1, "kept")),
		c.entriesProposal(0, putEntry("i", "d", 1, "x")),
		c.entriesProposal(0, deleteEntry("i", "d", 1)),
	)
	c.withView(func(v persistence.View) {
		expectTexts(t, "index", entryTexts(t, v, 0, all), "a/1 replaced", "c/1 kept")
		expectTexts(t, "of another partition", entryTexts(t, v, 1, all))
		if head(t, v, 0, "indexed") != 0 {
			t.Fatal("a change of entries has advanced the stream")
		}
		expectTexts(t, "feed", eventTexts(t, v.Feed(0, 0, nil)))
	})
}

func testIndexQueries(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	const last = ^uint64(0)
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a", 0, ""), putEntry("i", "a", 5, ""), putEntry("i", "a", 300, ""), putEntry("i", "a", last, ""),
		putEntry("i", "a\x00", 6, ""), putEntry("i", "ab", 7, ""), putEntry("i", "", 8, ""), putEntry("i\x00a", "a", 9, "")))
	c.withView(func(v persistence.View) {
		query := func(value string, from uint64, d persistence.Direction) []string {
			return entryTexts(t, v, 0, persistence.Query{Index: "i", Value: value, From: from, Direction: d})
		}
		expectTexts(t, "from 0", query("a", 0, persistence.Ascending), "a/0 ", "a/5 ", "a/300 ", "a/18446744073709551615 ")
		expectTexts(t, "from 5", query("a", 5, persistence.Ascending), "a/5 ", "a/300 ", "a/18446744073709551615 ")
		expectTexts(t, "from 6", query("a", 6, persistence.Ascending), "a/300 ", "a/18446744073709551615 ")
		expectTexts(t, "down from 300", query("a", 300, persistence.Descending), "a/300 ", "a/5 ", "a/0 ")
		expectTexts(t, "down from 299", query("a", 299, persistence.Descending), "a/5 ", "a/0 ")
		expectTexts(t, "down from 0", query("a", 0, persistence.Descending), "a/0 ")
		expectTexts(t, "down from the last", query("a", last, persistence.Descending), "a/18446744073709551615 ", "a/300 ", "a/5 ", "a/0 ")
		expectTexts(t, "up from the last", query("a", last, persistence.Ascending), "a/18446744073709551615 ")
		expectTexts(t, "a value with 00", query("a\x00", 0, persistence.Ascending), "a\x00/6 ")
		expectTexts(t, "no value", query("", 0, persistence.Ascending), "/8 ")
		expectTexts(t, "none", query("b", 0, persistence.Ascending))
	})
}

func testIndexPrefix(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a/", 1, ""), putEntry("i", "a/b", 9, ""), putEntry("i", "a/b", 2, ""), putEntry("i", "a/\xff\xff", 3, ""),
		putEntry("i", "a/\x00", 4, ""), putEntry("i", "a/\x01", 5, ""), putEntry("i", "a", 6, ""), putEntry("i", "a0", 7, ""), putEntry("j", "a/", 8, "")))
	up := []string{"a//1 ", "a/\x00/4 ", "a/\x01/5 ", "a/b/2 ", "a/b/9 ", "a/\xff\xff/3 "}
	down := []string{"a/\xff\xff/3 ", "a/b/9 ", "a/b/2 ", "a/\x01/5 ", "a/\x00/4 ", "a//1 "}
	c.withView(func(v persistence.View) {
		query := persistence.Query{Index: "i", Value: "a/", Prefix: true, From: 5}
		expectTexts(t, "up", entryTexts(t, v, 0, query), up...)
		query.Direction = persistence.Descending
		expectTexts(t, "down", entryTexts(t, v, 0, query), down...)
		expectTexts(t, "FF", entryTexts(t, v, 0, persistence.Query{Index: "i", Value: "a/\xff", Prefix: true}), "a/\xff\xff/3 ")
		expectTexts(t, "all", entryTexts(t, v, 0, persistence.Query{Index: "i", Prefix: true}), append(append([]string{"a/6 "}, up...), "a0/7 ")...)
	})
}

func testIndexAfter(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	const last = ^uint64(0)
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a", 1, ""), putEntry("i", "a", last, ""), putEntry("i", "a\x00", 2, ""), putEntry("i", "a\x01", 3, ""),
		putEntry("i", "ab", 4, ""), putEntry("i", "b", 5, "")))
	c.withView(func(v persistence.View) {
		after := func(value, after string) []string {
			return entryTexts(t, v, 0, persistence.Query{Index: "i", Value: value, Prefix: true, After: after})
		}
		expectTexts(t, "after a", after("", "a"), "a\x00/2 ", "a\x01/3 ", "ab/4 ", "b/5 ")
		expectTexts(t, "of a after a with 00", after("a", "a\x00"), "a\x01/3 ", "ab/4 ")
		expectTexts(t, "after a missing value", after("a", "aa"), "ab/4 ")
		expectTexts(t, "after the last", after("a", "ab"))
	})
}

func testLookup(t *testing.T, h Harness) {
	c := openClient(t, h)
	defer c.mustClose()
	c.mustAppend(c.entriesProposal(0, putEntry("i", "a\x00b", 7, "here"), putEntry("i", "empty", 0, "")))
	c.withView(func(v persistence.View) {
		for _, want := range []struct {
			partition persistence.Partition
			value     string
			order     uint64
			data      string
			ok        bool
		}{{0, "a\x00b", 7, "here", true}, {0, "empty", 0, "", true}, {0, "a\x00b", 8, "", false}, {0, "a", 7, "", false}, {1, "a\x00b", 7, "", false}} {
			data, ok, err := v.Lookup(want.partition, "i", want.value, want.order)
			if err != nil || ok != want.ok || string(data) != want.data {
				t.Errorf("%q %d of partition %d is %q, %v, %v", want.value, want.order, want.partition, data, ok, err)
			}
		}
	})
}
