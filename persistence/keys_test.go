package persistence

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
)

// TestKeys compares the encoding of keys with the encoding that is stored on disks.
func TestKeys(t *testing.T) {
	datadriven.RunTest(t, "testdata/keys", func(t *testing.T, d *datadriven.TestData) string {
		var p int
		var stream, index, value string
		var number uint64
		d.MaybeScanArgs(t, "p", &p)
		d.MaybeScanArgs(t, "stream", &stream)
		d.MaybeScanArgs(t, "index", &index)
		d.MaybeScanArgs(t, "value", &value)
		d.MaybeScanArgs(t, "n", &number)
		stream, index, value = unquote(stream), unquote(index), unquote(value)
		var key []byte
		switch d.Cmd {
		case "event":
			key = appendNumber(appendEventPrefix(nil, Partition(p), Stream(stream)), number)
		case "head":
			key = appendHeadKey(nil, Partition(p), Stream(stream))
		case "feed":
			key = appendFeedKey(nil, Partition(p), number)
		case "entry":
			key = appendEntryKey(nil, Partition(p), index, value, number)
		case "snapshot":
			key = appendSnapshotKey(nil, Partition(p), Stream(stream))
		case "term":
			key = appendHeader(nil, Partition(p), tagTerm)
		case "applied":
			key = appendHeader(nil, Partition(p), tagApplied)
		case "configuration":
			key = appendHeader(nil, Partition(p), tagConfiguration)
		default:
			d.Fatalf(t, "unknown key %s", d.Cmd)
		}
		at := splitKey(key)
		return fmt.Sprintf("%x | %x\n", key[:at], key[at:])
	})
}

// TestNextPrefix compares nextPrefix with its definition for random keys.
func TestNextPrefix(t *testing.T) {
	keys := rapid.Custom(func(rt *rapid.T) []byte {
		key := appendHeader(nil, 0, rapid.SampledFrom([]byte{tagEvent, tagFeed, tagHead, tagIndex, tagTerm}).Draw(rt, "tag"))
		return append(key, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 0xff}), 0, 5).Draw(rt, "rest")...)
	})
	rapid.Check(t, func(rt *rapid.T) {
		a := keys.Draw(rt, "a")
		a = a[:splitKey(a)]
		next := nextPrefix([]byte("x"), a)[1:]
		if bytes.Compare(next, a) <= 0 || splitKey(next) != len(next) {
			rt.Fatalf("%x follows %x", next, a)
		}
		other := keys.Draw(rt, "other")
		if other = other[:splitKey(other)]; bytes.Compare(other, a) > 0 && bytes.Compare(other, next) < 0 {
			rt.Fatalf("%x is between %x and %x", other, a, next)
		}
	})
}

// unquote decodes bytes that the syntax of the test files cannot express.
func unquote(s string) string {
	return strings.NewReplacer("<00>", "\x00", "<01>", "\x01", "<02>", "\x02", "<ff>", "\xff").Replace(s)
}

// FuzzKeys checks that encoded keys sort like their contents, and that decoding reverses encoding.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b", uint64(1), "a\x00", "", uint64(2))
	f.Add("", "\x00", uint64(0), "", "\x00\x01", ^uint64(0))
	f.Add("a\x01", "\x01\x01", uint64(7), "a\x01", "\x01\x02", uint64(7))
	f.Add("a", "b\xff", uint64(256), "a", "b", uint64(255))
	f.Fuzz(func(t *testing.T, name1, value1 string, n1 uint64, name2, value2 string, n2 uint64) {
		entry1, entry2 := appendEntryKey(nil, 1, name1, value1, n1), appendEntryKey(nil, 1, name2, value2, n2)
		byEntry := cmp.Or(strings.Compare(name1, name2), strings.Compare(value1, value2), cmp.Compare(n1, n2))
		checkComparer(t, entry1, entry2, byEntry)
		checkComparer(t, entry1[:splitKey(entry1)], entry2[:splitKey(entry2)], cmp.Or(strings.Compare(name1, name2), strings.Compare(value1, value2)))
		event1, event2 := appendNumber(appendEventPrefix(nil, 1, Stream(name1)), n1), appendNumber(appendEventPrefix(nil, 1, Stream(name2)), n2)
		checkComparer(t, event1, event2, cmp.Or(strings.Compare(name1, name2), cmp.Compare(n1, n2)))
		escaped, err := entryValue(entry1, len(appendValuesPrefix(nil, 1, name1, "")))
		if err != nil {
			t.Fatal(err)
		}
		if value, err := unescape(escaped); err != nil || value != value1 {
			t.Fatalf("value %q is read as %q: %v", value1, value, err)
		}
		if n, err := keyNumber(entry1); err != nil || n != n1 {
			t.Fatalf("order %d is read as %d: %v", n1, n, err)
		}
		prefix := appendValuesPrefix(nil, 1, name1, value1)
		if got := bytes.HasPrefix(entry2, prefix); got != (name1 == name2 && strings.HasPrefix(value2, value1)) {
			t.Fatalf("prefix %q of %q: %v", value1, value2, got)
		}
	})
}

// checkComparer checks the properties that Pebble requires of a comparer with a Split function, for a, b and shortened
// keys between them.
func checkComparer(t *testing.T, a, b []byte, want int) {
	t.Helper()
	if got := Comparer.Compare(a, b); got != want {
		t.Fatalf("%x and %x compare as %d, want %d", a, b, got, want)
	}
	keys := [][]byte{a, b, Comparer.Successor(nil, a)}
	if want < 0 {
		keys = append(keys, Comparer.Separator(nil, a, b))
	}
	slices.SortFunc(keys, Comparer.Compare)
	for i, k := range keys {
		prefix := k[:splitKey(k)]
		if splitKey(prefix) != len(prefix) {
			t.Fatalf("the prefix %x of %x has a prefix of its own", prefix, k)
		}
		if i > 0 && Comparer.Compare(keys[i-1][:splitKey(keys[i-1])], prefix) > 0 {
			t.Fatalf("prefixes of %x and %x are in the wrong order", keys[i-1], k)
		}
	}
}

// FuzzRecord decodes encoded records, by hand and with the generated code.
func FuzzRecord(f *testing.F) {
	f.Add(uint64(1), "name", "actor", "command", "request", int64(1_700_000_000_000), []byte("payload"))
	f.Add(uint64(0), "", "", "", "", int64(-1), []byte{})
	f.Fuzz(func(t *testing.T, sequence uint64, name, actor, command, request string, at int64, payload []byte) {
		at %= 1 << 50
		want := Event{Name: name, Actor: actor, CommandID: command, RequestID: request, At: time.UnixMilli(at).UTC(), Payload: payload}
		size := metadataSize(&want)
		record := appendRecord(nil, &want, sequence, size)
		if len(record) != recordSize(&want, sequence, size) {
			t.Fatalf("%d bytes, but recordSize is %d", len(record), recordSize(&want, sequence, size))
		}
		var got Event
		if err := new(decoder).decode(record, &got); err != nil {
			t.Fatal(err)
		}
		want.Sequence = sequence
		if fmt.Sprintf("%q", fmt.Sprint(got)) != fmt.Sprintf("%q", fmt.Sprint(want)) {
			t.Fatalf("got %v, want %v", got, want)
		}
		var m journalv1.Metadata
		if err := (proto.UnmarshalOptions{}).Unmarshal(appendMetadata(nil, &want), &m); err != nil {
			return // text that is not UTF-8
		}
		if m.Name != name || m.Actor != actor || m.CommandId != command || m.RequestId != request || m.At != at {
			t.Fatalf("the generated code reads %v", &m)
		}
	})
}

// FuzzDecode passes arbitrary bytes to the decoders.
func FuzzDecode(f *testing.F) {
	event := Event{Name: "n", At: time.UnixMilli(5), Payload: []byte("p")}
	f.Add(appendRecord(nil, &event, 9, metadataSize(&event)))
	f.Add([]byte{1, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		_ = new(decoder).decode(b, &e)
		_, _, _ = decodePosition(b)
		_, _ = unescape(b)
		_, _ = keyNumber(b)
		_, _ = entryValue(b, keyHeader)
		if n := splitKey(b); n > len(b) {
			t.Fatalf("split %d of %d bytes", n, len(b))
		}
	})
}

func TestMetadataWithUnknownFields(t *testing.T) {
	b, err := proto.Marshal(&journalv1.Metadata{Name: "n", At: 5, Actor: "a", CommandId: "c", RequestId: "r"})
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, 0x78, 1, 0x82, 1, 1, 'x') // fields 15 and 16 of a later version
	var e Event
	if err := new(decoder).decodeMetadata(b, &e); err != nil {
		t.Fatal(err)
	}
	if e.Name != "n" || e.At.UnixMilli() != 5 || e.Actor != "a" || e.CommandID != "c" || e.RequestID != "r" {
		t.Fatalf("got %+v", e)
	}
}
