// Package messages_test checks that stored messages stay readable: an event that was written once must be readable forever.
//
// The golden file testdata/stored.txt lists every message that is stored on disk, with its fields and the encoding of a
// sample that sets all of them. The test fails if a listed message, field or enum value is removed, renamed or renumbered,
// or has another type, with or without -rewrite. It also fails if a stored message or field is not listed, until -rewrite
// adds it.
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
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var rewrite = flag.Bool("rewrite", false, "add new messages and fields to the golden file")

const goldenFile = "testdata/stored.txt"

// otherStored lists the stored messages that are neither events nor states of a kind: metadata of events, snapshots, index
// rows of activity, rows of lists that are not part of a state, and inputs of tasks.
var otherStored = []proto.Message{
	&journalv1.Metadata{}, &journalv1.State{}, &journalv1.Mark{}, &journalv1.Parked{},
	&activityv1.Intent{}, &activityv1.Totals{}, &activityv1.Fold{}, &activityv1.Writer{}, &activityv1.IndexMark{},
	&auditv1.Event{}, &computerv1.Present{}, &computerv1.Sample{}, &computerv1.Work{},
	&workspacev1.InvitationMail{}, &workspacev1.AnchorCheck{}, &userv1.LinkMail{},
	&appv1.DomainRow{}, &appv1.RunTask{}, &appv1.StopTask{},
	&certificatesv1.File{}, &certificatesv1.Expiry{},
	&runtimev1.Timer{}, &runtimev1.Task{}, &runtimev1.Declared{},
}

func isEvent(m proto.Message) bool {
	return slices.ContainsFunc(kinds.All, func(k entity.Kind) bool { return k.IsEvent(m) })
}

// entry is the entry of one message in the golden file.
type entry struct {
	fields []string
	sample []byte
}

func TestStoredMessages(t *testing.T) {
	now, golden := storedMessages(), readGolden(t)
	for name, old := range golden {
		m, found := now[name]
		if !found {
			t.Errorf("%s was removed or renamed", name)
			continue
		}
		checkUnchanged(t, m, old)
	}
	next := describe(t, now)
	if t.Failed() {
		return
	}
	if *rewrite {
		writeGolden(t, next)
		return
	}
	for name, e := range next {
		if !slices.Equal(e.fields, golden[name].fields) || !bytes.Equal(e.sample, golden[name].sample) {
			t.Errorf("%s is not in the golden file or has new fields: run this test with -rewrite", name)
		}
	}
}

// checkUnchanged checks that a message has every field of its entry, and that it decodes and encodes the sample unchanged.
func checkUnchanged(t *testing.T, m proto.Message, old entry) {
	t.Helper()
	name := m.ProtoReflect().Descriptor().FullName()
	today := fieldsOf(m.ProtoReflect().Descriptor(), "")
	for _, field := range old.fields {
		if !slices.Contains(today, field) {
			t.Errorf("%s: field %q was removed or changed", name, field)
		}
	}
	decoded := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(old.sample, decoded); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if again := encode(t, decoded); !bytes.Equal(again, old.sample) {
		t.Errorf("%s: %x is encoded again as %x (%s)", name, old.sample, again, prototext.Format(decoded))
	}
}

// storedMessages returns every message that is stored on disk, by full name.
func storedMessages() map[string]proto.Message {
	all := make(map[string]proto.Message)
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if m := mt.Zero().Interface(); isEvent(m) {
			all[string(mt.Descriptor().FullName())] = m
		}
		return true
	})
	others := slices.Clone(otherStored)
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

// describe returns the entries of messages for the golden file.
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

// fieldsOf lists the number, name and type of each field, the fields of nested messages with the number of the message as
// prefix, and the values of enums.
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

// readGolden parses the golden file.
func readGolden(t *testing.T) map[string]entry {
	t.Helper()
	text, err := os.ReadFile(goldenFile)
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

// writeGolden writes the golden file.
func writeGolden(t *testing.T, entries map[string]entry) {
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
	if err := os.WriteFile(goldenFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
