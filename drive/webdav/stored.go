package webdav

import (
	"encoding/xml"
	"regexp"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// Processes write the extended attributes of a drive's files, and archives and operators write the files beside it. What is read
// from them is therefore parsed like the body of a request, and encoded again: no stored text is inserted in a response.

// validProperties returns the stored properties that a PROPPATCH request could have set, in the form in which it stores them. It
// leaves out every other property, a property with the name of a live or of an earlier property, and what exceeds maxEditBytes.
func validProperties(stored []drive.Property) []drive.Property {
	var valid []drive.Property
	seen := map[xml.Name]bool{}
	remaining := maxEditBytes
	for _, property := range stored {
		name := xml.Name{Space: property.Space, Local: property.Local}
		if _, live := liveProperty(name); live || seen[name] {
			continue
		}
		e, err := parseStored(deadElement(property))
		if err != nil || e.name != name {
			continue
		}
		value, tooLarge := newValue(e, &remaining)
		if tooLarge {
			continue
		}
		seen[name] = true
		valid = append(valid, *value)
	}
	return valid
}

// maxStoredNodes limits the nodes of a stored element. Encoding adds a declaration for each element and attribute of a request.
const maxStoredNodes = 2*maxNodes + 2

// parseStored parses a stored element. It returns errXML if it is not an element that a request can contain.
func parseStored(text string) (*element, error) {
	parser := &parser{
		decoder: xml.NewDecoder(strings.NewReader(text)), declared: map[string]bool{xmlNS: true}, maxNodes: maxStoredNodes,
	}
	root, err := parser.document()
	if err == nil && root == nil {
		err = errXML
	}
	return root, err
}

var tokenForm = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validLocks returns the stored locks that acquire could have stored, with their owners encoded again, within the limits of acquire. None
// of them lasts longer than maxTimeout from now.
func validLocks(stored []*lock) []*lock {
	latest := expiry(maxTimeout)
	var valid []*lock
	for _, held := range stored {
		if len(valid) == maxLocks {
			break
		}
		if held == nil || held.Creator == "" || !tokenForm.MatchString(held.Token) || held.Path != "" && entity.CheckPath(held.Path) != nil {
			continue
		}
		owner, err := parseStored(`<owner>` + held.Owner + `</owner>`)
		if err != nil {
			continue
		}
		if held.Owner, err = owner.encodeContent(maxOwner); err != nil {
			continue
		}
		if sizeOf(valid)+held.size() > maxLockBytes || !fitsPaths(valid, held) {
			continue
		}
		held.Expires = min(held.Expires, latest)
		valid = append(valid, held)
	}
	return valid
}
