package journaltest

import (
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

func put(index, value string, order uint64, data string) persistence.Change {
	return persistence.Change{Entry: persistence.Entry{Index: index, Value: value, Order: order, Data: []byte(data)}}
}

func remove(index, value string, order uint64) persistence.Change {
	return persistence.Change{Entry: persistence.Entry{Index: index, Value: value, Order: order}, Remove: true}
}

// change changes entries alone.
func (c *client) change(p persistence.Partition, changes ...persistence.Change) persistence.Proposal {
	proposed := c.proposal(p, "indexed", 0)
	proposed.Entries = changes
	return proposed
}

func testIndexChanges(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	all := persistence.Query{Index: "i", Prefix: true}
	c.must(c.change(0, put("i", "a", 1, "first"), put("i", "a", 2, "second"), put("other", "a", 1, "other")))
	c.must(c.change(0, put("i", "a", 1, "replaced"), remove("i", "a", 2), remove("i", "never", 1)))
	// In one proposal, and in one batch, the last change counts.
	c.must(
		c.change(0, put("i", "b", 1, "x"), remove("i", "b", 1)),
		c.change(0, remove("i", "c", 1), put("i", "c", 1, "kept")),
		c.change(0, put("i", "d", 1, "x")),
		c.change(0, remove("i", "d", 1)),
	)
	c.look(func(v persistence.View) {
		equal(t, "index", rows(t, v, 0, all), "a/1 replaced", "c/1 kept")
		equal(t, "of another partition", rows(t, v, 1, all))
		if head(t, v, 0, "indexed") != 0 {
			t.Fatal("entries alone moved the stream")
		}
		equal(t, "feed", names(t, v.Feed(0, 0, nil)))
	})
}

func testIndexQueries(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	const last = ^uint64(0)
	c.must(c.change(0, put("i", "a", 0, ""), put("i", "a", 5, ""), put("i", "a", 300, ""), put("i", "a", last, ""),
		put("i", "a\x00", 6, ""), put("i", "ab", 7, ""), put("i", "", 8, ""), put("i\x00a", "a", 9, "")))
	c.look(func(v persistence.View) {
		query := func(value string, from uint64, d persistence.Direction) []string {
			return rows(t, v, 0, persistence.Query{Index: "i", Value: value, From: from, Direction: d})
		}
		equal(t, "from 0", query("a", 0, persistence.Ascending), "a/0 ", "a/5 ", "a/300 ", "a/18446744073709551615 ")
		equal(t, "from 5", query("a", 5, persistence.Ascending), "a/5 ", "a/300 ", "a/18446744073709551615 ")
		equal(t, "from 6", query("a", 6, persistence.Ascending), "a/300 ", "a/18446744073709551615 ")
		equal(t, "down from 300", query("a", 300, persistence.Descending), "a/300 ", "a/5 ", "a/0 ")
		equal(t, "down from 299", query("a", 299, persistence.Descending), "a/5 ", "a/0 ")
		equal(t, "down from 0", query("a", 0, persistence.Descending), "a/0 ")
		equal(t, "down from the last", query("a", last, persistence.Descending), "a/18446744073709551615 ", "a/300 ", "a/5 ", "a/0 ")
		equal(t, "up from the last", query("a", last, persistence.Ascending), "a/18446744073709551615 ")
		equal(t, "a value with 00", query("a\x00", 0, persistence.Ascending), "a\x00/6 ")
		equal(t, "no value", query("", 0, persistence.Ascending), "/8 ")
		equal(t, "none", query("b", 0, persistence.Ascending))
	})
}

func testIndexPrefix(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	c.must(c.change(0, put("i", "a/", 1, ""), put("i", "a/b", 9, ""), put("i", "a/b", 2, ""), put("i", "a/\xff\xff", 3, ""),
		put("i", "a/\x00", 4, ""), put("i", "a/\x01", 5, ""), put("i", "a", 6, ""), put("i", "a0", 7, ""), put("j", "a/", 8, "")))
	up := []string{"a//1 ", "a/\x00/4 ", "a/\x01/5 ", "a/b/2 ", "a/b/9 ", "a/\xff\xff/3 "}
	down := []string{"a/\xff\xff/3 ", "a/b/9 ", "a/b/2 ", "a/\x01/5 ", "a/\x00/4 ", "a//1 "}
	c.look(func(v persistence.View) {
		query := persistence.Query{Index: "i", Value: "a/", Prefix: true, From: 5}
		equal(t, "up", rows(t, v, 0, query), up...)
		query.Direction = persistence.Descending
		equal(t, "down", rows(t, v, 0, query), down...)
		equal(t, "FF", rows(t, v, 0, persistence.Query{Index: "i", Value: "a/\xff", Prefix: true}), "a/\xff\xff/3 ")
		equal(t, "all", rows(t, v, 0, persistence.Query{Index: "i", Prefix: true}), append(append([]string{"a/6 "}, up...), "a0/7 ")...)
	})
}

func testIndexAfter(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	const last = ^uint64(0)
	c.must(c.change(0, put("i", "a", 1, ""), put("i", "a", last, ""), put("i", "a\x00", 2, ""), put("i", "a\x01", 3, ""),
		put("i", "ab", 4, ""), put("i", "b", 5, "")))
	c.look(func(v persistence.View) {
		after := func(value, after string) []string {
			return rows(t, v, 0, persistence.Query{Index: "i", Value: value, Prefix: true, After: after})
		}
		equal(t, "after a", after("", "a"), "a\x00/2 ", "a\x01/3 ", "ab/4 ", "b/5 ")
		equal(t, "of a after a with 00", after("a", "a\x00"), "a\x01/3 ", "ab/4 ")
		equal(t, "after what is not there", after("a", "aa"), "ab/4 ")
		equal(t, "after the last", after("a", "ab"))
	})
}

func testLookup(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	c.must(c.change(0, put("i", "a\x00b", 7, "here"), put("i", "empty", 0, "")))
	c.look(func(v persistence.View) {
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
