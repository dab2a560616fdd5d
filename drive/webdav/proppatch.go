package webdav

import (
	"encoding/xml"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// maxEditBytes limits the values that one PROPPATCH request sets, in bytes. A resource cannot store more.
const maxEditBytes = 64 << 10

// An edit sets a property, or removes it if value is nil.
type edit struct {
	name  xml.Name
	value *drive.Property
	// isTooLarge is set if the value exceeds maxEditBytes.
	isTooLarge bool
}

// proppatch answers PROPPATCH. It makes all edits, in their order, or none.
func (c *call) proppatch() error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	edits, err := parseEdits(body)
	if err != nil {
		return err
	}
	change, err := c.change()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(edits, edit.isProtected) {
		if _, err := c.drive.Stat(c.path); err != nil {
			return err
		}
		return c.refuseEdits(edits)
	}
	err = c.drive.Patch(c.context(), c.path, change, func(props []drive.Property) ([]drive.Property, error) {
		if slices.ContainsFunc(edits, func(e edit) bool { return e.isTooLarge }) {
			return nil, entity.Errorf(drive.Full, "a property is too large")
		}
		return applyEdits(validProperties(props), edits), nil
	})
	switch {
	case entity.HasCode(err, drive.Full):
		return c.writeEdits(propstat{http.StatusInsufficientStorage, elementsOf(edits)})
	case err != nil:
		return err
	}
	return c.writeEdits(propstat{http.StatusOK, elementsOf(edits)})
}

// parseEdits parses a propertyupdate element.
func parseEdits(body *element) (edits []edit, err error) {
	if body == nil || !body.is("propertyupdate") {
		return nil, errXML
	}
	remaining := maxEditBytes
	for _, action := range body.children() {
		set := action.is("set")
		props := action.child("prop")
		if !set && !action.is("remove") {
			continue
		}
		if props == nil {
			return nil, errXML
		}
		for _, property := range props.children() {
			next := edit{name: property.name}
			if set {
				next.value, next.isTooLarge = newValue(property, &remaining)
			}
			edits = append(edits, next)
		}
	}
	if len(edits) == 0 || len(edits) > maxNames {
		return nil, entity.Errorf(entity.InvalidRequest, "a PROPPATCH request must set or remove 1 to %d properties", maxNames)
	}
	return edits, nil
}

// newValue returns the property that an element sets, with the language in scope (RFC 4918, section 4.3). It subtracts
// the size of the value from remaining, and returns tooLarge if that is not enough.
func newValue(property *element, remaining *int) (value *drive.Property, tooLarge bool) {
	attrs := slices.DeleteFunc(slices.Clone(property.attrs), func(a xml.Attr) bool {
		return a.Name.Space == xmlNS && a.Name.Local == "lang"
	})
	if property.lang != "" {
		attrs = append(attrs, xml.Attr{Name: xml.Name{Space: xmlNS, Local: "lang"}, Value: property.lang})
	}
	written, err := encodeAttrs(attrs, *remaining)
	if err != nil {
		return nil, true
	}
	inner, err := property.encodeContent(*remaining - len(written))
	if err != nil {
		return nil, true
	}
	*remaining -= len(written) + len(inner)
	return &drive.Property{Space: property.name.Space, Local: property.name.Local, Attrs: written, Inner: inner}, false
}

// isProtected reports whether the edit is of a live property, which cannot be changed.
func (e edit) isProtected() bool {
	_, live := liveProperty(e.name)
	return live
}

// applyEdits returns the properties after the edits. It reuses props.
func applyEdits(props []drive.Property, edits []edit) []drive.Property {
	for _, e := range edits {
		at := slices.IndexFunc(props, func(p drive.Property) bool { return p.Space == e.name.Space && p.Local == e.name.Local })
		switch {
		case e.value == nil && at >= 0:
			props = slices.Delete(props, at, at+1)
		case e.value != nil && at >= 0:
			props[at] = *e.value
		case e.value != nil:
			props = append(props, *e.value)
		}
	}
	return props
}

// refuseEdits answers 403 for the protected properties and 424 (Failed Dependency) for the others.
func (c *call) refuseEdits(edits []edit) error {
	var protected, others []edit
	for _, e := range edits {
		if e.isProtected() {
			protected = append(protected, e)
		} else {
			others = append(others, e)
		}
	}
	return c.writeEdits(propstat{http.StatusForbidden, elementsOf(protected)}, propstat{http.StatusFailedDependency, elementsOf(others)})
}

// writeEdits answers with the status of each edit.
func (c *call) writeEdits(groups ...propstat) error {
	entry, err := c.drive.Stat(c.path)
	if err != nil {
		return err
	}
	out := c.multistatus()
	if err := out.response(c.href(c.path, entry.Folder), groups...); err != nil {
		return c.endStream(err)
	}
	return c.endStream(out.end())
}

func elementsOf(edits []edit) []string {
	var elements []string
	for _, e := range edits {
		elements = append(elements, emptyElement(e.name))
	}
	return elements
}
