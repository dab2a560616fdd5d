package webdav

import (
	"encoding/xml"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive"
)

// TestLargestRequestStaysValid sets as many nodes as a request can have, which encoding increases. File systems with large attributes
// store them.
func TestLargestRequestStaysValid(t *testing.T) {
	var attributes strings.Builder
	for i := range maxNodes - 20 {
		fmt.Fprintf(&attributes, ` x:a%d=""`, i)
	}
	for _, property := range []string{
		`<x:m xmlns:x="u">` + strings.Repeat("<x:b/>", maxNodes-20) + `</x:m>`,
		`<x:m xmlns:x="u" ` + attributes.String() + `/>`,
		`<x:m xmlns:x="u" xml:lang="de">` + strings.Repeat("a<b/>", 1000) + `</x:m>`,
	} {
		p := &parser{decoder: xml.NewDecoder(strings.NewReader(property)), declared: map[string]bool{xmlNS: true}, maxNodes: maxNodes}
		e, err := p.document()
		if err != nil {
			t.Fatal(err)
		}
		remaining := maxEditBytes
		value, tooLarge := newValue(e, &remaining)
		if tooLarge {
			t.Fatal("the property is too large")
		}
		if stored := []drive.Property{*value}; !slices.Equal(validProperties(stored), stored) {
			t.Errorf("%.60s is not valid any more after it was stored", property)
		}
	}
}

// TestLargestAttributeUsesBoundedMemory parses attributes of the greatest size in the forms that cost the most.
func TestLargestAttributeUsesBoundedMemory(t *testing.T) {
	const size = 64 << 10
	for _, value := range []string{
		strings.Repeat("<a/>", size/4), strings.Repeat("<a>", size/3), strings.Repeat(`<a xmlns="`+strings.Repeat("n", 1000)+`"/>`, size/1020),
		"<a" + strings.Repeat(` b=""`, size/5) + "/>", strings.Repeat("a<b/>", size/5),
	} {
		p := drive.Property{Space: strings.Repeat("<", maxNamespace), Local: "x", Inner: value}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		validProperties([]drive.Property{p})
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
			t.Errorf("%.20s… has allocated %d bytes", value, grown)
		}
	}
	many := make([]drive.Property, size/len(`{"l":"a"},`))
	for i := range many {
		many[i].Local = "a"
	}
	if got := validProperties(many); len(got) != 1 {
		t.Errorf("%d properties of one name are valid", len(got))
	}
}
