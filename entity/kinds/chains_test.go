package kinds_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/kinds"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/chains.md")

const (
	overview     = "../../docs/chains.md"
	overviewHead = `# What follows from events

The commands that kinds send to other entities after their own events: the function React of
each package below ` + "`entity`" + `. The commands of one event to one entity are sent in this order;
[ADR 12](adr/0012-reactions.md) describes order, repetition and failure.

This page is written by ` + "`go test ./entity/kinds -rewrite`" + `, and the same test fails if it is out of date.
`
)

// forEachSample calls fn with variants of an event: one with every field set, one for each value of each enum field, and
// one without each message field. condition describes the difference from the first variant; it is empty for the first variant.
func forEachSample(event proto.Message, fn func(condition string, sample proto.Message)) {
	full := event.ProtoReflect().New()
	entitytest.Populate(full)
	fn("", full.Interface())
	fields := full.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsList() || field.IsMap():
		case field.Enum() != nil:
			values := field.Enum().Values()
			for j := range values.Len() {
				sample := proto.Clone(full.Interface())
				sample.ProtoReflect().Set(field, protoreflect.ValueOfEnum(values.Get(j).Number()))
				fn(fmt.Sprintf("%s is %s", field.Name(), values.Get(j).Name()), sample)
			}
		case field.Message() != nil:
			sample := proto.Clone(full.Interface())
			sample.ProtoReflect().Clear(field)
			fn(fmt.Sprintf("without %s", field.Name()), sample)
		}
	}
}

func describeCommand(c entity.Command) string {
	return fmt.Sprintf("%s: `%s`", c.Kind, c.Message.ProtoReflect().Descriptor().Name())
}

func describeReactions(reactions []entity.Reaction) string {
	var parts []string
	for _, r := range reactions {
		part := describeCommand(r.Command)
		if r.Condition != nil {
			part += ", if not refused by " + describeCommand(*r.Condition)
		}
		if r.Otherwise != nil {
			part += "; if refused, " + describeCommand(*r.Otherwise)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "<br>")
}

// rowsOf returns the table rows of an event in docs/chains.md. A variant of the event gets a row of its own if other
// commands follow from it than from the event with every field set.
func rowsOf(k entity.Kind, name protoreflect.Name, event proto.Message) []string {
	var base string
	var rows []string
	row := func(condition, commands string) {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, condition, commands))
	}
	forEachSample(event, func(condition string, sample proto.Message) {
		commands := describeReactions(k.React("identity", sample))
		switch {
		case condition == "":
			if base = commands; base != "" {
				row("", base)
			}
		case commands == base:
		case commands == "":
			row(condition, "none")
		default:
			row(condition, commands)
		}
	})
	return rows
}

func TestOverviewOfChains(t *testing.T) {
	text := overviewHead
	for _, k := range kinds.All {
		if k.React == nil {
			continue
		}
		var rows []string
		forEachMessage(func(name protoreflect.FullName, m proto.Message) {
			if k.IsEvent(m) {
				rows = append(rows, rowsOf(k, name.Name(), m)...)
			}
		})
		slices.SortStableFunc(rows, func(a, b string) int {
			return strings.Compare(strings.SplitN(a, "|", 3)[1], strings.SplitN(b, "|", 3)[1])
		})
		if len(rows) == 0 {
			t.Errorf("no event of kind %s has reactions: remove its React", k.Name)
		}
		text += fmt.Sprintf("\n## %s\n\n| event | where | commands |\n| --- | --- | --- |\n%s\n", k.Name, strings.Join(rows, "\n"))
	}
	if *rewrite {
		if err := os.WriteFile(overview, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile(overview); err != nil || string(stored) != text {
		t.Errorf("docs/chains.md is out of date: run this test with -rewrite (%v)", err)
	}
}

// TestReactionsAreCommands checks that every reaction is a command of a registered kind with an identity, and that React is
// deterministic and leaves its argument unchanged.
func TestReactionsAreCommands(t *testing.T) {
	byName := map[string]entity.Kind{}
	for _, k := range kinds.All {
		byName[k.Name] = k
	}
	check := func(t *testing.T, c *entity.Command) {
		t.Helper()
		if c == nil {
			return
		}
		if target, known := byName[c.Kind]; !known || !target.IsCommand(c.Message) || c.Identity == "" {
			t.Errorf("%T is sent to %s %q", c.Message, c.Kind, c.Identity)
		}
	}
	for _, k := range kinds.All {
		if k.React == nil {
			continue
		}
		forEachMessage(func(name protoreflect.FullName, m proto.Message) {
			if !k.IsEvent(m) {
				if len(k.React("identity", m)) > 0 {
					t.Errorf("%s is not an event of kind %s but has reactions", name, k.Name)
				}
				return
			}
			t.Run(string(name), func(t *testing.T) {
				forEachSample(m, func(_ string, sample proto.Message) {
					before := proto.Clone(sample)
					reactions := k.React("identity", sample)
					if !proto.Equal(before, sample) {
						t.Errorf("React changed %v", before)
					}
					entitytest.EqualReactions(t, k.React("identity", sample), reactions)
				})
				full := m.ProtoReflect().New()
				entitytest.Populate(full)
				for _, r := range k.React("identity", full.Interface()) {
					check(t, &r.Command)
					check(t, r.Condition)
					check(t, r.Otherwise)
				}
			})
		})
	}
}
