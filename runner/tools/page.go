package tools

import (
	"slices"
	"strings"
)

// firstNames collects the first entries, in the order of their names, of the entries that are added in any order.
type firstNames struct {
	// most is the number of entries; the entries begin after the name after.
	most    int
	after   string
	entries []FileEntry
	more    bool
}

func (p *firstNames) add(e FileEntry) {
	if p.after != "" && e.Name <= p.after {
		return
	}
	at, _ := slices.BinarySearchFunc(p.entries, e.Name, func(one FileEntry, name string) int { return strings.Compare(one.Name, name) })
	if len(p.entries) == p.most {
		p.more = true
		if at == p.most {
			return
		}
		p.entries = p.entries[:p.most-1]
	}
	p.entries = slices.Insert(p.entries, at, e)
}
