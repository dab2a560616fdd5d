package webdav

import (
	"bufio"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

const (
	// maxNames limits the properties that one request selects.
	maxNames = 256
	// maxNamesBytes limits the elements with their names, in bytes, because the response repeats them for each entry.
	maxNamesBytes = 16 << 10
)

// A selection is the set of properties that a PROPFIND request selects of each entry.
type selection struct {
	// namesOnly selects the names of all properties, without values (propname).
	namesOnly bool
	// all selects all dead properties, and all live properties without byNameOnly (allprop).
	all bool
	// names selects properties by name (prop), with all in addition to the others (include).
	names []xml.Name
}

// propfind answers PROPFIND. It writes the response entry by entry, so that memory does not grow with the folder.
func (c *call) propfind() error {
	depth := c.r.Header.Get("Depth")
	if depth != "" && !isDepth(depth) {
		return errDepth
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	selected, err := parsePropfind(body)
	if err != nil {
		return err
	}
	entry, err := c.drive.Stat(c.path)
	if err != nil {
		return err
	}
	switch {
	case entry.Folder && (depth == "" || isInfinity(depth)):
		return errFiniteDepth
	case entry.Folder && depth == "1":
		return c.writeFolder(selected, entry)
	}
	out := c.multistatus()
	return c.endStream(errors.Join(c.writeSelf(out, selected, entry), out.end()))
}

// writeFolder answers with the folder and its entries.
func (c *call) writeFolder(selected selection, entry drive.Entry) error {
	folder, err := c.drive.OpenFolder(c.path)
	if err != nil {
		return err
	}
	defer folder.Close()
	out := c.multistatus()
	if err := c.writeSelf(out, selected, entry); err != nil {
		return c.endStream(err)
	}
	err = folder.Each(c.context(), func(e drive.Entry) error {
		path := e.Name
		if c.path != "" {
			path = c.path + "/" + e.Name
		}
		return c.writeEntry(out, selected, resource{call: c, path: path, entry: e, stored: func() ([]drive.Property, error) {
			return folder.Properties(e.Name)
		}})
	})
	return c.endStream(errors.Join(err, out.end()))
}

// writeSelf writes the response element for the requested path itself.
func (c *call) writeSelf(out *multistatus, selected selection, entry drive.Entry) error {
	return c.writeEntry(out, selected, resource{call: c, path: c.path, entry: entry, stored: func() ([]drive.Property, error) {
		return c.drive.Properties(c.path)
	}})
}

// writeEntry writes the response element for one entry. It leaves out an entry that was deleted in the meantime.
func (c *call) writeEntry(out *multistatus, selected selection, r resource) error {
	found, missing, err := selected.evaluate(r)
	if errors.Is(err, errVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	return out.response(c.href(r.path, r.entry.Folder), propstat{http.StatusOK, found}, propstat{http.StatusNotFound, missing})
}

// parsePropfind parses the body of a PROPFIND request; an empty body means allprop.
func parsePropfind(body *element) (selected selection, err error) {
	if body == nil {
		return selection{all: true}, nil
	}
	if !body.is("propfind") {
		return selection{}, errXML
	}
	if body.child("propname") != nil {
		return selection{namesOnly: true}, nil
	}
	named := body.child("prop")
	if body.child("allprop") != nil {
		selected.all = true
		named = body.child("include")
	} else if named == nil {
		return selection{}, errXML
	}
	if named == nil {
		return selected, nil
	}
	selected.names, err = childNames(named)
	return selected, err
}

// childNames returns the distinct names of an element's children. It returns InvalidRequest if they exceed the limits.
func childNames(named *element) (names []xml.Name, err error) {
	remaining := maxNamesBytes
	for _, property := range named.children() {
		if slices.Contains(names, property.name) {
			continue
		}
		names = append(names, property.name)
		if remaining -= len(emptyElement(property.name)); remaining < 0 || len(names) > maxNames {
			return nil, entity.Errorf(entity.InvalidRequest, "a PROPFIND request can name at most %d properties, with at most %d bytes for their names", maxNames, maxNamesBytes)
		}
	}
	return names, nil
}

var errVanished = errors.New("webdav: the entry was deleted")

// evaluate returns the elements of the selected properties: found are the properties that the resource has, missing the
// others. It returns errVanished if the entry does not exist any more.
func (s selection) evaluate(r resource) (found, missing []string, err error) {
	if !s.all && !s.namesOnly && !s.namesDead() {
		found, missing = s.evaluateNamed(r, nil)
		return found, missing, nil
	}
	dead, err := r.dead()
	if entity.HasCode(err, entity.NotFound) {
		return nil, nil, errVanished
	}
	if err != nil {
		return nil, nil, err
	}
	if s.namesOnly {
		return propertyNames(r, dead), nil, nil
	}
	if s.all {
		for _, live := range liveProperties {
			if value, has := live.value(r); has && !live.byNameOnly {
				found = append(found, live.element(value))
			}
		}
		for _, property := range dead {
			found = append(found, deadElement(property))
		}
	}
	more, missing := s.evaluateNamed(r, dead)
	return append(found, more...), missing, nil
}

// namesDead reports whether the selection names a dead property.
func (s selection) namesDead() bool {
	for _, name := range s.names {
		if _, live := liveProperty(name); !live {
			return true
		}
	}
	return false
}

// evaluateNamed is evaluate for the properties that are selected by name.
func (s selection) evaluateNamed(r resource, dead []drive.Property) (found, missing []string) {
	for _, name := range s.names {
		if element, has := r.property(name, dead); has {
			found = append(found, element)
		} else {
			missing = append(missing, emptyElement(name))
		}
	}
	return found, missing
}

// A multistatus streams a multistatus response (RFC 4918, section 13).
type multistatus struct{ out *bufio.Writer }

func (c *call) multistatus() *multistatus {
	c.w.Header().Set("Content-Type", xmlType)
	c.w.WriteHeader(http.StatusMultiStatus)
	m := &multistatus{bufio.NewWriterSize(c.w, 16<<10)}
	m.out.WriteString(xmlHead + `<D:multistatus xmlns:D="DAV:">`)
	return m
}

type propstat struct {
	status   int
	elements []string
}

// response writes the response element for one entry. It leaves out groups without elements, unless all are empty.
func (m *multistatus) response(href string, groups ...propstat) error {
	m.out.WriteString("\n<D:response><D:href>" + escape(href) + "</D:href>")
	written := false
	for i, group := range groups {
		if len(group.elements) == 0 && (written || i < len(groups)-1) {
			continue
		}
		written = true
		m.out.WriteString("<D:propstat><D:prop>")
		for _, element := range group.elements {
			m.out.WriteString(element)
		}
		m.out.WriteString("</D:prop>" + statusElement(group.status) + "</D:propstat>")
	}
	_, err := m.out.WriteString("</D:response>")
	return err
}

// writeStatus writes a response element with the status for one path.
func (m *multistatus) writeStatus(href string, status int) {
	m.out.WriteString("\n<D:response><D:href>" + escape(href) + "</D:href>" + statusElement(status) + "</D:response>")
}

func (m *multistatus) end() error {
	m.out.WriteString("\n</D:multistatus>\n")
	return m.out.Flush()
}
