// Package messages_test holds stored history to its word: an event that was written once can be read for ever.
//
// testdata/stored.txt lists every message that lies on disk, with its fields and the bytes of a sample that has all of
// them set. A message, field or enum value in it that is gone, renamed, renumbered or of another type fails the test,
// with or without -rewrite; what is new fails it until -rewrite has added it.
package messages_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/kinds"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var rewrite = flag.Bool("rewrite", false, "add new messages and fields to the golden file")

const golden = "testdata/stored.txt"

// beside are the stored messages that are neither events nor states of a kind: an event's metadata, a snapshot, the
// activity's index rows, rows of lists that are not in a state.
var beside = []proto.Message{
	&journalv1.Metadata{}, &journalv1.State{}, &journalv1.Mark{}, &journalv1.Parked{},
	&activityv1.Intent{}, &activityv1.Totals{}, &activityv1.Fold{}, &activityv1.Writer{}, &activityv1.IndexMark{},
	&auditv1.Event{}, &computerv1.Present{}, &computerv1.Sample{}, &computerv1.Work{},
	&workspacev1.InvitationMail{}, &workspacev1.AnchorCheck{}, &userv1.LinkMail{},
	&runtimev1.Timer{}, &runtimev1.Task{}, &runtimev1.Declared{},
}

func isEvent(m proto.Message) bool {
	return slices.ContainsFunc(kinds.All, func(k entity.Kind) bool { return k.IsEvent(m) })
}

// entry is what the golden file says about one message.
type entry struct {
	fields []string
	sample []byte
}

func TestStoredMessages(t *testing.T) {
	now, kept := stored(), read(t)
	for name, old := range kept {
		m, found := now[name]
		if !found {
			t.Errorf("%s is gone or renamed", name)
			continue
		}
		checkKept(t, m, old)
	}
	next := describe(t, now)
	if t.Failed() {
		return
	}
	if *rewrite {
		write(t, next)
		return
	}
	for name, e := range next {
		if !slices.Equal(e.fields, kept[name].fields) || !bytes.Equal(e.sample, kept[name].sample) {
			t.Errorf("%s is new or has new fields: run this test with -rewrite", name)
		}
	}
}

// checkKept reads old bytes with today's message, and finds every old field in it.
func checkKept(t *testing.T, m proto.Message, old entry) {
	t.Helper()
	name := m.ProtoReflect().Descriptor().FullName()
	today := fieldsOf(m.ProtoReflect().Descriptor(), "")
	for _, field := range old.fields {
		if !slices.Contains(today, field) {
			t.Errorf("%s: field %q is gone or changed", name, field)
		}
	}
	decoded := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(old.sample, decoded); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if again := encode(t, decoded); !bytes.Equal(again, old.sample) {
		t.Errorf("%s: %x is written again as %x (%s)", name, old.sample, again, prototext.Format(decoded))
	}
}

// stored is every message that lies on disk, by full name.
func stored() map[string]proto.Message {
	all := make(map[string]proto.Message)
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if m := mt.Zero().Interface(); isEvent(m) {
			all[string(mt.Descriptor().FullName())] = m
		}
		return true
	})
	others := slices.Clone(beside)
	for _, k := range kinds.All {
		if k.Zero != nil {
			others = append(others, k.Zero("").ProtoReflect().New().Interface())
		}
	}
	for _, m := range others {
		all[string(m.ProtoReflect().Descriptor().FullName())] = m
	}
	return all
}

func describe(t *testing.T, messages map[string]proto.Message) map[string]entry {
	t.Helper()
	entries := make(map[string]entry)
	for name, m := range messages {
		full := m.ProtoReflect().New()
		entitytest.Populate(full)
		entries[name] = entry{fieldsOf(full.Descriptor(), ""), encode(t, full.Interface())}
	}
	return entries
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fieldsOf lists number, name and type of each field, those of nested messages behind the number of their own, and the
// values of enums.
func fieldsOf(d protoreflect.MessageDescriptor, prefix string) []string {
	var lines []string
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		number := fmt.Sprintf("%s%d", prefix, field.Number())
		lines = append(lines, fmt.Sprintf("%s %s %s %s", number, field.Name(), field.Cardinality(), typeOf(field)))
		if nested := field.Message(); nested != nil {
			lines = append(lines, fieldsOf(nested, number+".")...)
		}
		if enum := field.Enum(); enum != nil {
			lines = append(lines, valuesOf(enum, number)...)
		}
	}
	return lines
}

func valuesOf(d protoreflect.EnumDescriptor, field string) []string {
	var lines []string
	for i := range d.Values().Len() {
		value := d.Values().Get(i)
		lines = append(lines, fmt.Sprintf("%s = %d %s", field, value.Number(), value.Name()))
	}
	return lines
}

func typeOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.Message() != nil:
		return string(field.Message().FullName())
	case field.Enum() != nil:
		return string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

func read(t *testing.T) map[string]entry {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil && !(*rewrite && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	entries := make(map[string]entry)
	for block := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if len(lines) < 2 {
			continue
		}
		var e entry
		for _, line := range lines[1 : len(lines)-1] {
			e.fields = append(e.fields, strings.TrimSpace(line))
		}
		sample, err := hex.DecodeString(strings.TrimSpace(lines[len(lines)-1]))
		if err != nil {
			t.Fatalf("%s: %v", lines[0], err)
		}
		e.sample = sample
		entries[lines[0]] = e
	}
	return entries
}

func write(t *testing.T, entries map[string]entry) {
	t.Helper()
	var text strings.Builder
	for i, name := range slices.Sorted(maps.Keys(entries)) {
		if i > 0 {
			text.WriteString("\n")
		}
		fmt.Fprintln(&text, name)
		for _, field := range entries[name].fields {
			fmt.Fprintf(&text, "  %s\n", field)
		}
		fmt.Fprintf(&text, "  %x\n", entries[name].sample)
	}
	if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
