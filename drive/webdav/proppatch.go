package webdav

import (
	"encoding/xml"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
)

// maxEdits bounds what one PROPPATCH sets, in bytes: no resource has room for more.
const maxEdits = 64 << 10

// An edit sets a property or, without a value, removes it.
type edit struct {
	name  xml.Name
	value *drive.Property
	// excess: the value has no room.
	excess bool
}

// proppatch answers PROPPATCH: all of its edits are made, in their order, or none.
func (c *call) proppatch() error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	edits, err := editsOf(body)
	if err != nil {
		return err
	}
	change, err := c.change(func() []claim { return []claim{{path: c.path}} })
	if err != nil {
		return err
	}
	if slices.ContainsFunc(edits, edit.isProtected) {
		if _, err := c.drive.Stat(c.path); err != nil {
			return err
		}
		return c.refuseEdits(edits)
	}
	if slices.ContainsFunc(edits, func(e edit) bool { return e.excess }) {
		if err := change.Guard(); err != nil {
			return err
		}
		return c.answerEdits(propstat{http.StatusInsufficientStorage, elementsOf(edits)})
	}
	err = c.drive.Patch(c.context(), c.path, change, func(props []drive.Property) []drive.Property {
		return apply(props, edits)
	})
	switch {
	case code(err) == drive.Full:
		return c.answerEdits(propstat{http.StatusInsufficientStorage, elementsOf(edits)})
	case err != nil:
		return err
	}
	return c.answerEdits(propstat{http.StatusOK, elementsOf(edits)})
}

func editsOf(body *element) (edits []edit, err error) {
	if body == nil || !body.is("propertyupdate") {
		return nil, errXML
	}
	room := maxEdits
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
				next.value, next.excess = valueOf(property, &room)
			}
			edits = append(edits, next)
		}
	}
	if len(edits) == 0 || len(edits) > maxNames {
		return nil, entity.Errorf(entity.InvalidRequest, "a PROPPATCH has 1 to %d properties", maxNames)
	}
	return edits, nil
}

// valueOf keeps the language in scope, as RFC 4918, section 4.3 demands.
func valueOf(property *element, room *int) (value *drive.Property, excess bool) {
	attrs := slices.DeleteFunc(slices.Clone(property.attrs), func(a xml.Attr) bool {
		return a.Name.Space == xmlNS && a.Name.Local == "lang"
	})
	if property.lang != "" {
		attrs = append(attrs, xml.Attr{Name: xml.Name{Space: xmlNS, Local: "lang"}, Value: property.lang})
	}
	written, err := writeAttrs(attrs, *room)
	if err != nil {
		return nil, true
	}
	inner, err := property.inner(*room - len(written))
	if err != nil {
		return nil, true
	}
	*room -= len(written) + len(inner)
	return &drive.Property{Space: property.name.Space, Local: property.name.Local, Attrs: written, Inner: inner}, false
}

func (e edit) isProtected() bool {
	_, live := liveProperty(e.name)
	return live
}

func apply(props []drive.Property, edits []edit) []drive.Property {
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

// refuseEdits says which edits are not allowed, and that the others fell with them.
func (c *call) refuseEdits(edits []edit) error {
	var protected, others []edit
	for _, e := range edits {
		if e.isProtected() {
			protected = append(protected, e)
		} else {
			others = append(others, e)
		}
	}
	return c.answerEdits(propstat{http.StatusForbidden, elementsOf(protected)}, propstat{http.StatusFailedDependency, elementsOf(others)})
}

func (c *call) answerEdits(groups ...propstat) error {
	entry, err := c.drive.Stat(c.path)
	if err != nil {
		return err
	}
	out := c.multistatus()
	if err := out.response(c.href(c.path, entry.Folder), groups...); err != nil {
		return c.finish(err)
	}
	return c.finish(out.end())
}

func elementsOf(edits []edit) []string {
	var elements []string
	for _, e := range edits {
		elements = append(elements, emptyElement(e.name))
	}
	return elements
}
