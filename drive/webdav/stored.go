package webdav

import (
	"encoding/xml"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/locks"
)

// Processes write the extended attributes of a drive's files, and archives and operators write the files beside it. Stored text
// is therefore parsed like the body of a request, and encoded again: no stored text is inserted in a response.

// validProperties returns the stored properties that a PROPPATCH request could have set, in the form in which it stores them. It
// leaves out every other property, a property with the name of a live or of an earlier property, and properties that exceed maxEditBytes.
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

// validOwner returns the owner of a stored lock, encoded again, or "" if a request could not have set it.
func validOwner(stored string) string {
	owner, err := parseStored(`<owner>` + stored + `</owner>`)
	if err != nil {
		return ""
	}
	content, err := owner.encodeContent(locks.MaxOwner)
	if err != nil {
		return ""
	}
	return content
}
